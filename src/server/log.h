#pragma once

#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace divvy::server {

// Lines about what happens: for people ("12:00:01 worker up: partition=0/1g.18gb@0 pid=77"), or one
// JSON object each.
class Log {
 public:
  enum class Form { kText, kJson };
  using Field = std::pair<std::string_view, std::string>;

  // `to` outlives it.
  explicit Log(std::FILE* to = stderr, Form form = Form::kText) : to_(to), form_(form) {}

  void Info(std::string_view what, std::initializer_list<Field> fields = {}) {
    Write("info", what, fields);
  }
  void Warning(std::string_view what, std::initializer_list<Field> fields = {}) {
    Write("warning", what, fields);
  }

 private:
  void Write(std::string_view level, std::string_view what, std::initializer_list<Field> fields);

  std::FILE* to_;
  Form form_;
};

}  // namespace divvy::server
