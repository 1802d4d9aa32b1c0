// moelink-generate as a program.
#include "engine/generate/generate.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/generation.hpp"
#include "engine/tokenizer/tokenizer.hpp"
#include "support/temporary_directory.hpp"

namespace moelink::engine {
namespace {

using testing::data_folder;

struct Outcome {
  int exit_code;
  std::string text;
  std::string errors;
};

Outcome run(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"moelink-generate"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream text;
  ::testing::internal::CaptureStderr();
  const int exit_code = run_generate(static_cast<int>(argv.size()), argv.data(), text);
  return {exit_code, text.str(), ::testing::internal::GetCapturedStderr()};
}

Outcome run_model(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {data_folder("tiny-qwen3-moe"), "--device", "host", "--threads", "1"});
  return run(arguments);
}

/// Prompt and 24 greedy tokens, as `--show-tokens` prints them.
struct Reference {
  std::string prompt;
  std::string tokens;
};
const std::vector<Reference>& references() {
  static const std::vector<Reference> all = [] {
    std::vector<Reference> found;
    const auto document = testing::load_json(data_folder("tiny-qwen3-moe") / "expected.json");
    for (const auto& entry : document["cases"]) {
      if (entry["ids"].size() > 40 || !entry.contains("prompt")) continue;
      Reference& reference = found.emplace_back(Reference{.prompt = entry["prompt"], .tokens = {}});
      for (const int token : entry["greedy_24"]) reference.tokens += std::to_string(token) + " ";
    }
    return found;
  }();
  return all;
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
}

TEST(Generate, OnePromptIsContinuedByTheReferencesTokens) {
  const Reference& reference = references().at(0);
  const Outcome result = run_model({"-p", reference.prompt, "-n", "24", "--ignore-end", "--show-tokens"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.text, reference.tokens + "\n");
  expect_words(result.errors, {"loading: 100 %", "24 generated", "time to first token", "dispatch", "combine"});
}

TEST(Generate, RanksThatShareExpertsGiveTheSameTokensForEachPrompt) {
  const std::size_t count = 3;
  ASSERT_GE(references().size(), count);
  for (const std::vector<std::string>& ranks : std::vector<std::vector<std::string>>{
           {"--ranks", "1"}, {"--ranks", "2"}, {"--ranks", "4"}, {"--ranks", "2", "--parallel", "tensor"}}) {
    std::vector<std::string> arguments = {"-n", "24", "--ignore-end", "--show-tokens"};
    arguments.insert(arguments.end(), ranks.begin(), ranks.end());
    for (std::size_t i = 0; i < count; ++i) arguments.insert(arguments.end(), {"-p", references()[i].prompt});
    const Outcome result = run_model(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    for (std::size_t i = 0; i < count; ++i) {
      expect_words(result.text, {"== prompt " + std::to_string(i + 1) + " (length)\n" + references()[i].tokens + "\n"});
    }
    expect_words(result.errors, {"72 generated"});
  }
}

TEST(Generate, APromptMayComeFromAFile) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() / "prompt.txt";
  std::ofstream(path, std::ios::binary) << references().at(0).prompt;
  const Outcome result = run_model({"--file", path, "-n", "24", "--ignore-end", "--show-tokens"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.text, references().at(0).tokens + "\n");
}

TEST(Generate, TextIsWhatTheTokensStandFor) {
  const auto document = testing::load_json(data_folder("tiny-qwen3-moe") / "expected.json");
  const Tokenizer tokenizer(data_folder("tiny-qwen3-moe") / "tokenizer.json");
  const auto& entry = document["cases"][0];
  const std::vector<Token> tokens = entry["greedy_24"];
  const Outcome result = run_model({"-p", entry["prompt"], "-n", "24", "--ignore-end"});
  EXPECT_EQ(result.text, tokenizer.decode(tokens) + "\n");
}

TEST(Generate, APromptThatDoesNotFitFailsAndOthersAreContinued) {
  const std::string long_text(4000, 'z');
  const Outcome result = run_model({"-p", long_text, "-p", references().at(0).prompt, "-n", "24", "--ignore-end",
                                    "--show-tokens", "--pages", "8", "--page-size", "16"});
  EXPECT_EQ(result.exit_code, 1);
  expect_words(result.errors, {"prompt 1: capacity: ", "do not fit 128 positions"});
  expect_words(result.text, {"== prompt 2 (length)\n" + references()[0].tokens});
}

TEST(Generate, RowsQuantisedOnTheirWayAreSaidInTheSummary) {
  const Outcome result = run_model({"-p", references().at(0).prompt, "-n", "4", "--ignore-end", "--payload", "mxfp8"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  expect_words(result.errors, {"dispatch of rows as mxfp8"});
}

TEST(Generate, WhatCannotBeFollowedIsRefusedWithExitCode2) {
  const auto refused = [](const std::vector<std::string>& arguments, const std::vector<std::string>& words) {
    const Outcome result = run_model(arguments);
    EXPECT_EQ(result.exit_code, 2);
    expect_words(result.errors, words);
    EXPECT_TRUE(result.text.empty());
  };
  refused({}, {"nothing to continue"});
  refused({"-p", ""}, {"prompt 1 is empty"});
  refused({"-p", "a", "--temperature", "-1"}, {"temperature is -1"});
  refused({"-p", "a", "--top-p", "0"}, {"top_p is 0"});
  refused({"-p", "a", "--type", "fp16"}, {"--type"});
  refused({"-p", "a", "--payload", "fp9"}, {"--payload", "nvfp4"});
  refused({"-f", "/nonesuch"}, {"'/nonesuch' cannot be read"});
  refused({"-f", "/tmp"}, {"'/tmp' is a folder"});
  refused({"-f", "/dev/null"}, {"prompt 1 is empty"});
  refused({"-f", "/proc/self/mem"}, {"'/proc/self/mem' cannot be read"});
  refused({"-p", "a", "--nonesuch"}, {"--nonesuch"});
  refused({"-p", "a", "--ranks", "2", "--mode", "local"}, {"--mode local", "there are 2"});
  refused({"-p", "a", "--ranks", "2", "--mode", "tensor_parallel"}, {"--mode tensor_parallel", "--parallel tensor"});
  refused({"-p", "a", "--ranks", "2", "--mode", "nvlink", "--parallel", "tensor"},
          {"--mode nvlink", "--parallel data"});
  EXPECT_EQ(run({"/nonesuch", "-p", "a"}).exit_code, 2);
}

TEST(Generate, AFolderWithoutAModelIsAnErrorThatNamesTheFile) {
  const test::TemporaryDirectory directory;
  const Outcome result = run({directory.path(), "-p", "a", "--device", "host"});
  EXPECT_EQ(result.exit_code, 1);
  expect_words(result.errors, {"tokenizer.json"});
}

}  // namespace
}  // namespace moelink::engine
