#pragma once

#include <cstddef>
#include <vector>

#include "control/policy.h"

// Tenths of GPUs under MPS: how many a job has is one question, on which GPUs another.
// This answers the second.

namespace divvy::control {

inline constexpr int kTenths = 10;  // Of one GPU.

// What jobs shall have, wherever it is.
struct ShareWish {
  struct Retraining {
    std::size_t tenant = 0;
    std::size_t option = 0;
    int tenths = 0;  // 1 to 10: on one GPU.
  };
  std::vector<int> serving;  // Tenths by tenant; more than 10 need several GPUs.
  std::vector<Retraining> retraining = {};
  bool make_room = true;  // Serving cells move for a retraining; if not, it takes less.
};

// Requests a slot that so many tenths answer on as few GPUs as they take.
[[nodiscard]] double PackedCapacity(const EstateTenant& tenant, int tenths);

// Tenths of all GPUs with which `tenant` serves now.
[[nodiscard]] int ServingTenths(const View& view, std::size_t tenant);

// Cells for the wish: one a tenant on each GPU where it serves, as many as possible as
// they are, so that few begin anew. Retrainings that run stay on their GPU. Where whole
// numbers do not fit, retrainings get less (or nothing), and services what is left.
// No GPU gives out more than ten tenths, and no cell is where its tenant cannot run.
//
// REQUIRES: the wish is for at most ten tenths a GPU in all.
[[nodiscard]] std::vector<Cell> PackShares(const Estate& estate, const View& view,
                                           const ShareWish& wish);

}  // namespace divvy::control
