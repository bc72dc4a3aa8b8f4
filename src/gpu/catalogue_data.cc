#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/catalogue.h"

// What is known about each GPU that MIG can cut, as a table to review by eye.
//
// Geometry (names, ids, counts, placements) is what `nvidia-smi mig -lgip` and
// `-lgipp` print. Memory is the GiB column of -lgip in MiB, so it is exact to
// about 5 MiB, and drivers differ by more than that. kUnseen and kNoEngines mark
// figures that no source we know of gives. A node's own driver always wins over
// this table.

namespace divvy::gpu {
namespace {

constexpr int kUnseen = -1;
constexpr Engines kNoEngines = {kUnseen, kUnseen, kUnseen, kUnseen, kUnseen};

// Starts as a set of bits, so that the table needs no code to build it.
template <typename... Starts>
constexpr std::uint32_t At(Starts... starts) {
  return ((1U << starts) | ...);
}

struct ProfileRow {
  std::string_view name;
  int nvml_enum;
  int nvml_id;
  int compute_slices;
  int memory_slices;
  int max_instances;
  int sms;
  int memory_mib;
  Engines engines;
  std::uint32_t starts;
};

struct GpuRow {
  std::string_view name;
  std::string_view architecture;
  std::uint32_t pci_device_ids[4];  // Unused ones are 0.
  int memory_slices;
  int compute_slices;
  int sms;
  Engines engines;
  ProfileRow profiles[12];  // Unused ones have no name.
  Provenance provenance;
  std::string_view note;
};

// Engines are {copy, decoders, encoders, jpeg, ofa}; a GPU's copy engines are
// shared out by the driver without a limit that MIG enforces, hence 0 there.
//
// Profile rows: name, NVML enum, NVML id, compute slices, memory slices, most
// instances, SMs, MiB, engines, starts.
//
// clang-format off
constexpr GpuRow kGpus[] = {
    {.name = "A30-24GB",
     .architecture = "Ampere GA100",
     .pci_device_ids = {0x20B710DE},
     .memory_slices = 4,
     .compute_slices = 4,
     .sms = 56,
     .engines = {0, 4, 0, 1, 1},
     .profiles = {
         {"1g.6gb",     0, 14, 1, 1, 4, 14,  5952, {1, 1, 0, 0, 0}, At(0, 1, 2, 3)},
         {"1g.6gb+me",  7, 21, 1, 1, 1, 14,  5952, {1, 1, 0, 1, 1}, At(0, 1, 2, 3)},
         {"2g.12gb",    1,  5, 2, 2, 2, 28, 11968, {2, 2, 0, 0, 0}, At(0, 2)},
         {"2g.12gb+me", 8,  6, 2, 2, 1, 28, 11968, {2, 2, 0, 1, 1}, At(0, 2)},
         {"4g.24gb",    3,  0, 4, 4, 1, 56, 24000, {4, 4, 0, 1, 1}, At(0)},
     },
     .provenance = Provenance::kReadOnHardware,
     .note = "NVML of some drivers reports wrong instance counts for this GPU; the counts "
             "here are those that can be created."},
    {.name = "A100-40GB",
     .architecture = "Ampere GA100",
     .pci_device_ids = {0x20B010DE, 0x20B110DE, 0x20F110DE, 0x20F610DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = 98,
     .engines = {0, 5, 0, 1, 1},
     .profiles = {
         {"1g.5gb",    0, 19, 1, 1, 7, 14,  4864, {1, 0, 0, 0, 0}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.5gb+me", 7, 20, 1, 1, 1, 14,  4864, {1, 1, 0, 1, 1}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.10gb",   9, 15, 1, 2, 4, 14,  9851, {1, 1, 0, 0, 0}, At(0, 2, 4, 6)},
         {"2g.10gb",   1, 14, 2, 2, 3, 28,  9851, {2, 1, 0, 0, 0}, At(0, 2, 4)},
         {"3g.20gb",   2,  9, 3, 4, 2, 42, 19968, {3, 2, 0, 0, 0}, At(0, 4)},
         {"4g.20gb",   3,  5, 4, 4, 1, 56, 19968, {4, 2, 0, 0, 0}, At(0)},
         {"7g.40gb",   4,  0, 7, 8, 1, 98, 40192, {7, 5, 0, 1, 1}, At(0)},
     },
     .provenance = Provenance::kPublished,
     .note = "MiB per profile vary by driver; 4g.20gb beside 3g.20gb needs R510 or newer, "
             "1g.10gb R525."},
    {.name = "A100-80GB",
     .architecture = "Ampere GA100",
     .pci_device_ids = {0x20B210DE, 0x20B510DE, 0x20F310DE, 0x20F510DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = 98,
     .engines = {0, 5, 0, 1, 1},
     .profiles = {
         {"1g.10gb",    0, 19, 1, 1, 7, 14,  9728, {1, 0, 0, 0, 0}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.10gb+me", 7, 20, 1, 1, 1, 14,  9728, {1, 1, 0, 1, 1}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.20gb",    9, 15, 1, 2, 4, 14, 19968, {1, 1, 0, 0, 0}, At(0, 2, 4, 6)},
         {"2g.20gb",    1, 14, 2, 2, 3, 28, 19968, {2, 1, 0, 0, 0}, At(0, 2, 4)},
         {"3g.40gb",    2,  9, 3, 4, 2, 42, 40192, {3, 2, 0, 0, 0}, At(0, 4)},
         {"4g.40gb",    3,  5, 4, 4, 1, 56, 40192, {4, 2, 0, 0, 0}, At(0)},
         {"7g.80gb",    4,  0, 7, 8, 1, 98, 80896, {7, 5, 0, 1, 1}, At(0)},
     },
     .provenance = Provenance::kReadOnHardware,
     .note = "MiB per profile vary by driver."},
    {.name = "H100-80GB",
     .architecture = "Hopper GH100",
     .pci_device_ids = {0x233010DE, 0x233110DE, 0x232210DE, 0x232410DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = 132,
     .engines = {0, 7, 0, 7, 1},
     .profiles = {
         {"1g.10gb",    0, 19, 1, 1, 7,  16,  9984, {1, 1, 0, 1, 0}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.10gb+me", 7, 20, 1, 1, 1,  16,  9984, {1, 1, 0, 1, 1}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.20gb",    9, 15, 1, 2, 4,  26, 20091, {1, 1, 0, 1, 0}, At(0, 2, 4, 6)},
         {"2g.20gb",    1, 14, 2, 2, 3,  32, 20091, {2, 2, 0, 2, 0}, At(0, 2, 4)},
         {"3g.40gb",    2,  9, 3, 4, 2,  60, 40448, {3, 3, 0, 3, 0}, At(0, 4)},
         {"4g.40gb",    3,  5, 4, 4, 1,  64, 40448, {4, 4, 0, 4, 0}, At(0)},
         {"7g.80gb",    4,  0, 7, 8, 1, 132, 81152, {8, 7, 0, 7, 1}, At(0)},
     },
     .provenance = Provenance::kReadOnHardware,
     .note = "SM counts are those of the SXM board; the PCIe board has 114 SMs in all."},
    {.name = "H100-94GB-NVL",
     .architecture = "Hopper GH100",
     .pci_device_ids = {0x232110DE, 0x233A10DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = 132,
     .engines = {0, 7, 0, 7, 1},
     .profiles = {
         {"1g.12gb",    0, 19, 1, 1, 7,  16, 11008, {1, 1, 0, 1, 0}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.12gb+me", 7, 20, 1, 1, 1,  16, 11008, {1, 1, 0, 1, 1}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.24gb",    9, 15, 1, 2, 4,  26, 22139, {1, 1, 0, 1, 0}, At(0, 2, 4, 6)},
         {"2g.24gb",    1, 14, 2, 2, 3,  32, 22139, {2, 2, 0, 2, 0}, At(0, 2, 4)},
         {"3g.47gb",    2,  9, 3, 4, 2,  60, 47493, {3, 3, 0, 3, 0}, At(0, 4)},
         {"4g.47gb",    3,  5, 4, 4, 1,  64, 47493, {4, 4, 0, 4, 0}, At(0)},
         {"7g.94gb",    4,  0, 7, 8, 1, 132, 95355, {8, 7, 0, 7, 1}, At(0)},
     },
     .provenance = Provenance::kReadOnHardware,
     .note = ""},
    {.name = "GH200-96GB",
     .architecture = "Hopper GH100",
     .pci_device_ids = {0x234210DE, 0x233D10DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = 132,
     .engines = {0, 7, 0, 7, 1},
     .profiles = {
         {"1g.12gb",    0, 19, 1, 1, 7,  16, kUnseen, {1, 1, 0, 1, 0}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.12gb+me", 7, 20, 1, 1, 1,  16, kUnseen, {1, 1, 0, 1, 1}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.24gb",    9, 15, 1, 2, 4,  26,   23552, {1, 1, 0, 1, 0}, At(0, 2, 4, 6)},
         {"2g.24gb",    1, 14, 2, 2, 3,  32,   23552, {2, 2, 0, 2, 0}, At(0, 2, 4)},
         {"3g.48gb",    2,  9, 3, 4, 2,  60,   47616, {3, 3, 0, 3, 0}, At(0, 4)},
         {"4g.48gb",    3,  5, 4, 4, 1,  64,   47616, {4, 4, 0, 4, 0}, At(0)},
         {"7g.96gb",    4,  0, 7, 8, 1, 132,   95232, {8, 7, 0, 7, 1}, At(0)},
     },
     .provenance = Provenance::kPublished,
     .note = "Memory of the 1g profiles was not seen."},
    {.name = "H20-96GB",
     .architecture = "Hopper GH100",
     .pci_device_ids = {0x232910DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = 78,
     .engines = kNoEngines,
     .profiles = {
         {"1g.12gb",    0, 19, 1, 1, 7, kUnseen, kUnseen, kNoEngines, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.12gb+me", 7, 20, 1, 1, 1, kUnseen, kUnseen, kNoEngines, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.24gb",    9, 15, 1, 2, 4, kUnseen, kUnseen, kNoEngines, At(0, 2, 4, 6)},
         {"2g.24gb",    1, 14, 2, 2, 3, kUnseen, kUnseen, kNoEngines, At(0, 2, 4)},
         {"3g.48gb",    2,  9, 3, 4, 2, kUnseen, kUnseen, kNoEngines, At(0, 4)},
         {"4g.48gb",    3,  5, 4, 4, 1, kUnseen, kUnseen, kNoEngines, At(0)},
         {"7g.96gb",    4,  0, 7, 8, 1, kUnseen, kUnseen, kNoEngines, At(0)},
     },
     .provenance = Provenance::kAssumed,
     .note = "How the 78 SMs are split was not seen; ids and placements follow the "
             "seven-slice family."},
    {.name = "H200-141GB",
     .architecture = "Hopper GH100",
     .pci_device_ids = {0x233510DE, 0x233B10DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = 132,
     .engines = {0, 7, 0, 7, 1},
     .profiles = {
         {"1g.18gb",    0, 19, 1, 1, 7,  16,  16384, {1, 1, 0, 1, 0}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.18gb+me", 7, 20, 1, 1, 1,  16,  16384, {1, 1, 0, 1, 1}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.35gb",    9, 15, 1, 2, 4,  26,  33280, {1, 1, 0, 1, 0}, At(0, 2, 4, 6)},
         {"2g.35gb",    1, 14, 2, 2, 3,  32,  33280, {2, 2, 0, 2, 0}, At(0, 2, 4)},
         {"3g.71gb",    2,  9, 3, 4, 2,  60,  71424, {3, 3, 0, 3, 0}, At(0, 4)},
         {"4g.71gb",    3,  5, 4, 4, 1,  64,  71424, {4, 4, 0, 4, 0}, At(0)},
         {"7g.141gb",   4,  0, 7, 8, 1, 132, 143360, {8, 7, 0, 7, 1}, At(0)},
     },
     .provenance = Provenance::kReadOnHardware,
     .note = "Read with driver 580.159.04. Other drivers print up to 0.25 GiB less a profile."},
    {.name = "GH200-144GB",
     .architecture = "Hopper GH100",
     .pci_device_ids = {0x234810DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = 132,
     .engines = {0, 7, 0, 7, 1},
     .profiles = {
         {"1g.18gb",    0, 19, 1, 1, 7,  16,   17920, {1, 1, 0, 1, 0}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.18gb+me", 7, 20, 1, 1, 1,  16,   17920, {1, 1, 0, 1, 1}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.36gb",    9, 15, 1, 2, 4,  26,   36096, {1, 1, 0, 1, 0}, At(0, 2, 4, 6)},
         {"2g.36gb",    1, 14, 2, 2, 3,  32,   36096, {2, 2, 0, 2, 0}, At(0, 2, 4)},
         {"3g.72gb",    2,  9, 3, 4, 2,  60, kUnseen, {3, 3, 0, 3, 0}, At(0, 4)},
         {"4g.72gb",    3,  5, 4, 4, 1,  64, kUnseen, {4, 4, 0, 4, 0}, At(0)},
         {"7g.144gb",   4,  0, 7, 8, 1, 132, kUnseen, {8, 7, 0, 7, 1}, At(0)},
     },
     .provenance = Provenance::kPublished,
     .note = "Memory of the 3g, 4g and 7g profiles was not seen."},
    {.name = "B200-180GB",
     .architecture = "Blackwell GB100",
     .pci_device_ids = {0x290110DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = kUnseen,
     .engines = kNoEngines,
     .profiles = {
         {"1g.23gb",    0, 19, 1, 1, 7,      18,   22528, {2, 1, 0, 1, 0}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.23gb+me", 7, 20, 1, 1, 1,      18,   22528, {2, 1, 0, 1, 1}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.45gb",    9, 15, 1, 2, 4,      30,   45312, {2, 1, 0, 1, 0}, At(0, 2, 4, 6)},
         {"2g.45gb",    1, 14, 2, 2, 3,      36,   45312, {4, 2, 0, 2, 0}, At(0, 2, 4)},
         {"3g.90gb",    2,  9, 3, 4, 2, kUnseen, kUnseen, kNoEngines,      At(0, 4)},
         {"4g.90gb",    3,  5, 4, 4, 1, kUnseen, kUnseen, kNoEngines,      At(0)},
         {"7g.180gb",   4,  0, 7, 8, 1, kUnseen, kUnseen, kNoEngines,      At(0)},
     },
     .provenance = Provenance::kPublished,
     .note = "SMs and memory of 3g and larger were not seen; memory of 1g varies by driver."},
    {.name = "GB200-186GB",
     .architecture = "Blackwell GB100",
     .pci_device_ids = {0x294110DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = kUnseen,
     .engines = kNoEngines,
     .profiles = {
         {"1g.23gb",    0, 19, 1, 1, 7,      18,   22528, {2, 1, 0, 1, 0}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.23gb+me", 7, 20, 1, 1, 1,      18,   22528, {2, 1, 0, 1, 1}, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.47gb",    9, 15, 1, 2, 4,      32,   46592, {2, 1, 0, 1, 0}, At(0, 2, 4, 6)},
         {"2g.47gb",    1, 14, 2, 2, 3,      38,   46592, {4, 2, 0, 2, 0}, At(0, 2, 4)},
         {"3g.93gb",    2,  9, 3, 4, 2, kUnseen, kUnseen, kNoEngines,      At(0, 4)},
         {"4g.93gb",    3,  5, 4, 4, 1, kUnseen, kUnseen, kNoEngines,      At(0)},
         {"7g.186gb",   4,  0, 7, 8, 1, kUnseen, kUnseen, kNoEngines,      At(0)},
     },
     .provenance = Provenance::kPublished,
     .note = "Early drivers used other profile names; SMs and memory of 3g and larger were "
             "not seen."},
    {.name = "B300-269GB",
     .architecture = "Blackwell Ultra",
     .pci_device_ids = {0x318210DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = kUnseen,
     .engines = kNoEngines,
     .profiles = {
         {"1g.34gb",    0, 19, 1, 1, 7, kUnseen, kUnseen, kNoEngines, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.34gb+me", 7, 20, 1, 1, 1, kUnseen, kUnseen, kNoEngines, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.67gb",    9, 15, 1, 2, 4, kUnseen, kUnseen, kNoEngines, At(0, 2, 4, 6)},
         {"2g.67gb",    1, 14, 2, 2, 3, kUnseen, kUnseen, kNoEngines, At(0, 2, 4)},
         {"3g.135gb",   2,  9, 3, 4, 2, kUnseen, kUnseen, kNoEngines, At(0, 4)},
         {"4g.135gb",   3,  5, 4, 4, 1, kUnseen, kUnseen, kNoEngines, At(0)},
         {"7g.269gb",   4,  0, 7, 8, 1, kUnseen, kUnseen, kNoEngines, At(0)},
     },
     .provenance = Provenance::kAssumed,
     .note = "Only names and counts are published."},
    {.name = "GB300-278GB",
     .architecture = "Blackwell Ultra",
     .pci_device_ids = {0x31C210DE},
     .memory_slices = 8,
     .compute_slices = 7,
     .sms = kUnseen,
     .engines = kNoEngines,
     .profiles = {
         {"1g.35gb",    0, 19, 1, 1, 7, kUnseen, kUnseen, kNoEngines, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.35gb+me", 7, 20, 1, 1, 1, kUnseen, kUnseen, kNoEngines, At(0, 1, 2, 3, 4, 5, 6)},
         {"1g.70gb",    9, 15, 1, 2, 4, kUnseen, kUnseen, kNoEngines, At(0, 2, 4, 6)},
         {"2g.70gb",    1, 14, 2, 2, 3, kUnseen, kUnseen, kNoEngines, At(0, 2, 4)},
         {"3g.139gb",   2,  9, 3, 4, 2, kUnseen, kUnseen, kNoEngines, At(0, 4)},
         {"4g.139gb",   3,  5, 4, 4, 1, kUnseen, kUnseen, kNoEngines, At(0)},
         {"7g.278gb",   4,  0, 7, 8, 1, kUnseen, kUnseen, kNoEngines, At(0)},
     },
     .provenance = Provenance::kAssumed,
     .note = "Only names and counts are published."},
    {.name = "RTX-PRO-6000-Blackwell-96GB",
     .architecture = "Blackwell GB202",
     .pci_device_ids = {0x2BB510DE},
     .memory_slices = 12,
     .compute_slices = 4,
     .sms = 188,
     .engines = {0, 4, 4, 4, 1},
     .profiles = {
         {"1g.24gb",         0, 14, 1,  3, 4,  46, 24187, {1, 1, 1, 1, 0}, At(0, 3, 6, 9)},
         {"1g.24gb+me",      7, 21, 1,  3, 1,  46, 24187, {1, 1, 1, 1, 1}, At(0, 3, 6, 9)},
         {"1g.24gb+gfx",    10, 47, 1,  3, 4,  46, 24187, {1, 1, 1, 1, 0}, At(0, 3, 6, 9)},
         {"1g.24gb+me.all", 15, 65, 1,  3, 1,  46, 24187, {1, 4, 4, 4, 1}, At(0, 3, 6, 9)},
         {"1g.24gb-me",     13, 67, 1,  3, 4,  46, 24187, {1, 0, 0, 0, 0}, At(0, 3, 6, 9)},
         {"2g.48gb",         1,  5, 2,  6, 2,  94, 48517, {2, 2, 2, 2, 0}, At(0, 6)},
         {"2g.48gb+gfx",    11, 35, 2,  6, 2,  94, 48517, {2, 2, 2, 2, 0}, At(0, 6)},
         {"2g.48gb+me.all", 16, 64, 2,  6, 1,  94, 48517, {2, 4, 4, 4, 1}, At(0, 6)},
         {"2g.48gb-me",     14, 66, 2,  6, 2,  94, 48517, {2, 0, 0, 0, 0}, At(0, 6)},
         {"4g.96gb",         3,  0, 4, 12, 1, 188, 97280, {4, 4, 4, 4, 1}, At(0)},
         {"4g.96gb+gfx",    12, 32, 4, 12, 1, 188, 97280, {4, 4, 4, 4, 1}, At(0)},
     },
     .provenance = Provenance::kReadOnHardware,
     .note = "MiB per profile vary by driver; workstation editions need compute mode set "
             "first."},
};
// clang-format on

std::optional<int> Seen(int value) {
  return value == kUnseen ? std::nullopt : std::optional(value);
}

std::optional<Engines> Seen(const Engines& engines) {
  return engines == kNoEngines ? std::nullopt : std::optional(engines);
}

MigProfile FromRow(const ProfileRow& row) {
  MigProfile profile{.name = std::string(row.name),
                     .nvml_enum = row.nvml_enum,
                     .nvml_id = row.nvml_id,
                     .compute_slices = row.compute_slices,
                     .memory_slices = row.memory_slices,
                     .max_instances = row.max_instances,
                     .sms = Seen(row.sms),
                     .memory_mib = Seen(row.memory_mib),
                     .engines = Seen(row.engines),
                     .starts = {}};
  for (int start = 0; start < 32; ++start) {
    if (row.starts >> start & 1U) profile.starts.push_back(start);
  }
  return profile;
}

GpuModel FromRow(const GpuRow& row) {
  GpuModel model{.name = std::string(row.name),
                 .architecture = std::string(row.architecture),
                 .pci_device_ids = {},
                 .memory_slices = row.memory_slices,
                 .compute_slices = row.compute_slices,
                 .sms = Seen(row.sms),
                 .engines = Seen(row.engines),
                 .profiles = {},
                 .provenance = row.provenance,
                 .note = std::string(row.note)};
  for (const std::uint32_t id : row.pci_device_ids) {
    if (id != 0) model.pci_device_ids.push_back(id);
  }
  for (const ProfileRow& profile : row.profiles) {
    if (!profile.name.empty()) model.profiles.push_back(FromRow(profile));
  }
  return model;
}

}  // namespace

const std::vector<GpuModel>& Catalogue() {
  // Leaked: programs may ask for it while they exit.
  static const auto* const catalogue = [] {
    auto* models = new std::vector<GpuModel>;
    for (const GpuRow& row : kGpus) models->push_back(FromRow(row));
    return models;
  }();
  return *catalogue;
}

}  // namespace divvy::gpu
