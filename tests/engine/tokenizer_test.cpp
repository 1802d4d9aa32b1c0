// The tokenizer against the encodings of the implementation that made the file, and against files that are wrong.
#include "engine/tokenizer/tokenizer.hpp"

#include <gtest/gtest.h>

#include "comm/expect_error.hpp"
#include "engine/model_folder.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace moelink::engine {
namespace {

using moelink::testing::expect_error;
using testing::data_folder;
using testing::load_json;
using testing::ModelFolder;
using Json = nlohmann::json;

const Tokenizer& tiny() {
  static const Tokenizer kTokenizer(data_folder("tiny-qwen3-moe") / "tokenizer.json");
  return kTokenizer;
}

template <class Change>
Tokenizer changed(Change&& change) {
  const ModelFolder folder("tiny-qwen3-moe");
  return Tokenizer(folder.edit("tokenizer.json", change));
}

template <class Change>
void expect_refused(ErrorCode code, const std::vector<std::string>& words, Change&& change) {
  expect_error(code, words, [&] { (void)changed(change); });
}

TEST(Tokenizer, EncodesAsTheReferenceDoes) {
  const Json cases = load_json(data_folder("tiny-qwen3-moe") / "tokenizer_cases.json");
  ASSERT_GE(cases.size(), 10U);
  for (const Json& entry : cases) {
    EXPECT_EQ(tiny().encode(entry["text"].get<std::string>()), entry["ids"].get<std::vector<Token>>()) << entry["text"];
  }
}

TEST(Tokenizer, DecodesAsTheReferenceDoes) {
  const Json cases = load_json(data_folder("tiny-qwen3-moe") / "expected.json")["cases"];
  ASSERT_GE(cases.size(), 4U);
  for (const Json& entry : cases) {
    const auto ids = entry["ids"].get<std::vector<Token>>();
    EXPECT_EQ(tiny().encode(entry["prompt"].get<std::string>()), ids);
    EXPECT_EQ(tiny().decode(ids, true), entry["text_back"].get<std::string>());
    EXPECT_EQ(tiny().decode(entry["greedy_24"].get<std::vector<Token>>(), true),
              entry["greedy_text"].get<std::string>());
  }
}

TEST(Tokenizer, TextSurvivesTheRoundTrip) {
  for (const std::string text :
       {"", "a", "  x  ", "\r\n\r\n\t", "naïve café", "日本語 👩‍👩‍👧 עברית", "a\nb\n\n\nc   d"}) {
    EXPECT_EQ(tiny().decode(tiny().encode(text)), text);
  }
}

TEST(Tokenizer, TextIsComposedFirst) { EXPECT_EQ(tiny().encode("e\u0301"), tiny().encode("\u00e9")); }

TEST(Tokenizer, StreamHandsOutOnlyWholeCharacters) {
  const std::string text = "tokens: 日本語 👩‍👩‍👧!";
  const std::vector<Token> tokens = tiny().encode(text);
  StreamDecoder stream(tiny());
  std::string joined;
  for (const Token token : tokens) {
    const std::string part = stream.push(token);
    EXPECT_EQ(valid_prefix(part), part.size());
    EXPECT_EQ(part.find(kReplacement), std::string::npos);
    joined += part;
  }
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(joined, text);
}

TEST(Tokenizer, StreamsOfAnyTokensAreWhatDecodeGives) {
  std::uint64_t state = 1;
  for (int round = 0; round < 200; ++round) {
    std::vector<Token> tokens;
    StreamDecoder stream(tiny(), true);
    std::string joined;
    for (int i = 0; i < 20; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      tokens.push_back(static_cast<Token>((state >> 33) % 300));
      joined += stream.push(tokens.back());
    }
    EXPECT_EQ(joined + stream.finish(), tiny().decode(tokens, true));
  }
}

TEST(Tokenizer, CharacterCutShortBecomesOneReplacement) {
  std::vector<Token> tokens = tiny().encode("語");
  ASSERT_EQ(tokens.size(), 3U);
  tokens.pop_back();
  EXPECT_EQ(tiny().decode(tokens), kReplacement);
  tokens.push_back(tiny().encode("x")[0]);
  EXPECT_EQ(tiny().decode(tokens), std::string(kReplacement) + "x");
}

TEST(Tokenizer, SpecialTokensAreLeftOutUnlessAskedFor) {
  const std::vector<Token> tokens = tiny().encode("<|im_start|>hi<|im_end|>");
  EXPECT_EQ(tiny().decode(tokens), "hi");
  EXPECT_EQ(tiny().decode(tokens, true), "<|im_start|>hi<|im_end|>");
  EXPECT_EQ(tiny().find("<|im_end|>"), 2);
  EXPECT_TRUE(tiny().is_special(2));
}

TEST(Tokenizer, TokensThatDoNotExistAreNothing) {
  EXPECT_EQ(tiny().decode(std::vector<Token>{1023, -1, 1 << 30}, true), "");
  EXPECT_FALSE(tiny().is_special(-1));
}

TEST(Tokenizer, TextThatIsNoUtf8NamesTheByte) {
  for (const std::string bad : {"ab\xFF", "ab\xE6\x97", "ab\xC0\x80", "ab\xED\xA0\x80", "ab\xF4\x90\x80\x80"}) {
    expect_error(ErrorCode::invalid_argument, {"byte 2"}, [&] { (void)tiny().encode(bad); });
  }
}

TEST(Tokenizer, LongWordsAndRunsOfSpacesTakeNoQuadraticTime) {
  const std::string letters(200'000, 'a');
  EXPECT_EQ(tiny().decode(tiny().encode(letters)), letters);
  const std::string spaces(200'000, ' ');
  EXPECT_EQ(tiny().decode(tiny().encode(spaces)), spaces);
}

TEST(Tokenizer, MergesInTheOldSpellingAreTheSame) {
  const Tokenizer old = changed([](Json& file) {
    for (Json& merge : file["model"]["merges"]) {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    }
  });
  EXPECT_EQ(old.encode("the expert dispatch"), tiny().encode("the expert dispatch"));
}

TEST(Tokenizer, AddedTokensMayTakeSpacesAlongAndTheLongestWins) {
  const Tokenizer wide = changed([](Json& file) {
    file["added_tokens"].push_back({{"id", 1000}, {"content", "<m>"}, {"lstrip", true}, {"rstrip", true}});
    file["added_tokens"].push_back({{"id", 1001}, {"content", "<m><m>"}, {"normalized", true}});
    file["added_tokens"].push_back({{"id", 1002}, {"content", "<|im_end|>x"}});
  });
  EXPECT_EQ(wide.encode("a  <m> \u3000 b"), (std::vector<Token>{tiny().encode("a")[0], 1000, tiny().encode("b")[0]}));
  EXPECT_EQ(wide.encode("<|im_end|>x<|im_end|>"), (std::vector<Token>{1002, 2}));
  EXPECT_EQ(wide.size(), 1003);
}

TEST(Tokenizer, TokensAroundEachTextComeFromTheTemplate) {
  const Tokenizer framed = changed([](Json& file) {
    file["post_processor"] =
        Json::parse(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
      "single":[{"SpecialToken":{"id":"<|im_start|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
                {"SpecialToken":{"id":"<|im_end|>","type_id":0}}]}]})");
  });
  EXPECT_EQ(framed.encode(""), (std::vector<Token>{1, 2}));
}

TEST(Tokenizer, ByteLevelAloneSplitsByItsOwnPattern) {
  const Tokenizer plain = changed([](Json& file) {
    file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  });
  EXPECT_EQ(plain.encode("it"), tiny().encode(" it"));
  EXPECT_EQ(plain.decode(plain.encode("123 it's  x")), " 123 it's  x");
}

std::vector<std::string> parts_of(const std::string& pattern, std::string_view text) {
  std::vector<std::string> parts;
  Regex(pattern, "pattern").split(text, [&](std::string_view part) { parts.emplace_back(part); });
  return parts;
}

TEST(Regex, SpacesAreUnicodesWhiteSpace) {
  using Parts = std::vector<std::string>;
  // U+180E was white space once, and still is for some.
  EXPECT_EQ(parts_of(R"(\s+)", "a\u180eb\u3000\u0085\u00a0c"), (Parts{"a\u180eb", "\u3000\u0085\u00a0", "c"}));
  EXPECT_EQ(parts_of(R"([^\s]+)", "a\u180e b"), (Parts{"a\u180e", " ", "b"}));
  EXPECT_EQ(parts_of(R"(\s+(?!\S)|\s+)", "a\u2003\u2003b"), (Parts{"a", "\u2003", "\u2003", "b"}));
  EXPECT_EQ(parts_of(R"(\S+)", "a\u180e b"), (Parts{"a\u180e", " ", "b"}));
}

TEST(Regex, EmptyMatchesNeitherHangNorCutCharacters) {
  EXPECT_EQ(parts_of("x*", "語xx語"), (std::vector<std::string>{"語", "xx", "語"}));
}

TEST(Tokenizer, FilesThatAreWrongAreRefused) {
  const auto invalid = ErrorCode::invalid_argument;
  expect_refused(invalid, {"model", "missing"}, [](Json& file) { file.erase("model"); });
  expect_refused(invalid, {"vocab", "missing"}, [](Json& file) { file["model"].erase("vocab"); });
  expect_refused(invalid, {"vocab", "-3"}, [](Json& file) { file["model"]["vocab"]["!"] = -3; });
  expect_refused(invalid, {"vocab", "the id 4"}, [](Json& file) { file["model"]["vocab"]["!"] = 4; });
  expect_refused(invalid, {"byte 33", "\"!\""}, [](Json& file) { file["model"]["vocab"].erase("!"); });
  expect_refused(invalid, {"merges", "nothere"}, [](Json& file) { file["model"]["merges"].push_back("nothere a"); });
  expect_refused(invalid, {"merges"}, [](Json& file) { file["model"]["merges"].push_back(7); });
  expect_refused(invalid, {"added_tokens", "<|im_end|>"}, [](Json& file) { file["added_tokens"][2]["id"] = 77; });
  expect_refused(invalid, {"added_tokens[0]", "content"}, [](Json& file) { file["added_tokens"][0]["content"] = ""; });
  expect_refused(invalid, {"at most"}, [](Json& file) { file["model"]["vocab"]["new"] = 2'000'000'000; });
  expect_refused(invalid, {"pattern"},
                 [](Json& file) { file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; });
}

TEST(Tokenizer, KindsThatAreNotImplementedAreNamed) {
  const auto unsupported = ErrorCode::unsupported;
  expect_refused(unsupported, {"WordPiece"}, [](Json& file) { file["model"]["type"] = "WordPiece"; });
  expect_refused(unsupported, {"byte_fallback"}, [](Json& file) { file["model"]["byte_fallback"] = true; });
  expect_refused(unsupported, {"normalizer", "Lowercase"},
                 [](Json& file) { file["normalizer"]["type"] = "Lowercase"; });
  expect_refused(unsupported, {"pre_tokenizer", "Metaspace"}, [](Json& file) {
    file["pre_tokenizer"] = {{"type", "Metaspace"}};
  });
  expect_refused(unsupported, {"pre_tokenizer", "ByteLevel"}, [](Json& file) { file["pre_tokenizer"] = nullptr; });
  expect_refused(unsupported, {"decoder"}, [](Json& file) { file["decoder"]["type"] = "WordPiece"; });
  expect_refused(unsupported, {"behavior", "Removed"},
                 [](Json& file) { file["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; });
  expect_refused(unsupported, {"BertProcessing"}, [](Json& file) {
    file["post_processor"] = {{"type", "BertProcessing"}};
  });
}

}  // namespace
}  // namespace moelink::engine
