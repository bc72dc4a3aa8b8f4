#include "simulated_node.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace divvy::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

json& FindInstance(json& state, int gpu, int start) {
  json& instances = state.at("gpus").at(static_cast<std::size_t>(gpu)).at("instances");
  for (json& instance : instances) {
    if (instance.at("start").get<int>() == start) return instance;
  }
  Check(false, "the instance is there");
  return instances;
}

std::string InstanceText(const json& instance) {
  std::string text = instance.at("profile").get<std::string>() + "@" +
                     std::to_string(instance.at("start").get<int>()) + "[";
  std::map<int, int> computes;  // Start to size: their order in the file is history.
  for (const json& c : instance.at("compute_instances")) {
    computes[c.at("start").get<int>()] = c.at("slices").get<int>();
  }
  for (const auto& [start, size] : computes) {
    if (text.back() != '[') text += ",";
    text += std::to_string(size) + "@" + std::to_string(start);
  }
  return text + "]";
}

}  // namespace

SimulatedNode::SimulatedNode() {
  // Sweeps sync thousands of journals: memory is quicker than a disk, where there is some.
  const std::string base = fs::is_directory("/dev/shm") ? "/dev/shm" : ::testing::TempDir();
  std::string pattern = base + "/divvy-test-XXXXXX";
  const char* const made = mkdtemp(pattern.data());
  Check(made != nullptr, "a temporary folder is to be had");
  dir_ = made;
}

SimulatedNode::~SimulatedNode() {
  fs::remove_all(dir_);
  fs::remove_all(dir_ + ".saved");
}

void SimulatedNode::Sim(const std::string& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {DIVVY_NVML_SIM_PATH, command, StatePath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const Finished finished = RunProgram(words, {});
  ASSERT_EQ(finished.exit_status, 0) << command << ": " << finished.err;
}

Finished SimulatedNode::Divvy(const std::vector<std::string>& arguments,
                              const std::map<std::string, std::string>& environment) const {
  std::vector<std::string> words = {DIVVY_PATH};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::map<std::string, std::string> all = environment;
  all.merge(Environment());
  return RunProgram(words, all);
}

std::map<std::string, std::string> SimulatedNode::Environment() const {
  return {{"DIVVY_NVML", NVML_SIM_LIBRARY},
          {"DIVVY_NVML_SIM_STATE", StatePath()},
          {"DIVVY_NVML_SIM_LOG", "1"},
          {"DIVVY_STATE_DIR", state_dir()}};
}

std::string SimulatedNode::Write(const std::string& name, const std::string& text) const {
  std::ofstream(Path(name)) << text;
  return Path(name);
}

std::string SimulatedNode::Read(const std::string& name) const {
  EXPECT_TRUE(std::filesystem::exists(Path(name))) << name;
  return ReadFile(Path(name));
}

void SimulatedNode::SplitCompute(int gpu, int start) const {
  json state = json::parse(ReadFile(StatePath()));
  json& computes = FindInstance(state, gpu, start).at("compute_instances");
  json second = computes.at(0);
  computes.at(0)["slices"] = second["slices"] = 1;
  second["id"] = second["start"] = 1;
  second["serial"] = state.at("next_serial");
  second["uuid"] = "MIG-00000000-0000-0000-0000-000000000001";
  state["next_serial"] = state.at("next_serial").get<int>() + 1;
  computes.push_back(second);
  std::ofstream(StatePath()) << state.dump(2);
}

void SimulatedNode::DropCompute(int gpu, int start) const {
  json state = json::parse(ReadFile(StatePath()));
  FindInstance(state, gpu, start)["compute_instances"] = json::array();
  std::ofstream(StatePath()) << state.dump(2);
}

std::string SimulatedNode::Layout() const {
  const json state = json::parse(ReadFile(StatePath()));
  std::string text;
  for (const json& gpu : state.at("gpus")) {
    text += gpu.at("mig").get<bool>() ? "mig" : "whole";
    if (gpu.at("mig") != gpu.at("mig_pending")) text += " (change pending)";
    std::map<int, std::string> instances;
    for (const json& instance : gpu.at("instances")) {
      instances[instance.at("start").get<int>()] = InstanceText(instance);
    }
    for (const auto& [start, instance] : instances) text += " " + instance;
    text += "\n";
  }
  return text;
}

std::string SimulatedNode::Identity(int gpu, int start) const {
  const json state = json::parse(ReadFile(StatePath()));
  for (const json& instance : state.at("gpus").at(static_cast<std::size_t>(gpu)).at("instances")) {
    if (instance.at("start").get<int>() == start) return instance.dump();
  }
  return "";
}

std::string SimulatedNode::Log() const { return ReadFile(StatePath() + ".log"); }

int SimulatedNode::CountCalls(const std::vector<std::string>& arguments) const {
  const std::string path = dir_ + "/count";
  Divvy(arguments, {{"DIVVY_NVML_SIM_COUNT_FILE", path}});
  return std::atoi(ReadFile(path).c_str());
}

bool SimulatedNode::HasJournal() const { return fs::exists(state_dir() + "/journal"); }

void SimulatedNode::Save() {
  const std::string saved = dir_ + ".saved";
  fs::remove_all(saved);
  fs::copy(dir_, saved, fs::copy_options::recursive);
}

void SimulatedNode::Restore() {
  const std::string saved = dir_ + ".saved";
  fs::remove_all(dir_);
  fs::copy(saved, dir_, fs::copy_options::recursive);
}

}  // namespace divvy::test
