#include "comm/wire.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/hmac.hpp"
#include "comm/expect_error.hpp"

namespace moelink {
namespace {

std::string hex_of_hmac(const std::string& key, const std::string& message) {
  return to_hex(hmac_sha256(key, message));
}

// RFC 4231, cases 1, 2 and 6.
TEST(Hmac, AgreesWithTheStandardsExamples) {
  EXPECT_EQ(hex_of_hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex_of_hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of_hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Wire, HandshakeMessagesHaveTheirFixedSizesAndReadBack) {
  Greeting greeting;
  greeting.key_required = true;
  fill_random(greeting.nonce);
  const Bytes greeting_bytes = encode(greeting);
  ASSERT_EQ(greeting_bytes.size(), Greeting::kBytes);
  EXPECT_EQ(encode(*decode_greeting(greeting_bytes)), greeting_bytes);

  Hello hello;
  hello.rank = 3;
  hello.size = 8;
  hello.patience_ms = 1234;
  hello.job = 0x0123456789abcdef;
  hello.has_key = true;
  fill_random(hello.nonce);
  hello.proof = prove("key", "rank", greeting, hello);
  const Bytes hello_bytes = encode(hello);
  ASSERT_EQ(hello_bytes.size(), Hello::kBytes);
  EXPECT_EQ(encode(*decode_hello(hello_bytes)), hello_bytes);
}

TEST(Wire, ForeignMagicIsNothing) {
  EXPECT_FALSE(decode_greeting(Bytes(Greeting::kBytes, std::byte{'S'})));
  EXPECT_FALSE(decode_hello(Bytes(Hello::kBytes)));
}

TEST(Wire, ProofDependsOnEveryPartOfTheHandshake) {
  const Greeting greeting;
  const Hello hello;
  const Proof proof = prove("key", "rank", greeting, hello);
  EXPECT_NE(proof, prove("other", "rank", greeting, hello));
  EXPECT_NE(proof, prove("key", "hub", greeting, hello)) << "one side's proof must not serve as the other's";
  Greeting other_greeting;
  other_greeting.nonce[0] = std::byte{1};
  EXPECT_NE(proof, prove("key", "rank", other_greeting, hello)) << "a recorded proof must not serve again";
  Hello other_hello;
  other_hello.rank = 1;
  EXPECT_NE(proof, prove("key", "rank", greeting, other_hello)) << "a proof must not serve another rank";
}

TEST(Wire, FramesAndFaultsReadBack) {
  const GroupFault fault{ErrorCode::timeout, 5, "rank 5 is late"};
  const Bytes bytes = encode(Frame{FrameType::fault, 42, encode(fault)});
  const FrameHeader header = decode_frame_header(bytes);
  EXPECT_EQ(header.type, FrameType::fault);
  EXPECT_EQ(header.round, 42U);
  ASSERT_EQ(header.payload_bytes + Frame::kHeaderBytes, bytes.size());
  const GroupFault read = decode_fault(std::span(bytes).subspan(Frame::kHeaderBytes));
  EXPECT_EQ(read.code, fault.code);
  EXPECT_EQ(read.rank, fault.rank);
  EXPECT_EQ(read.sentence, fault.sentence);
}

TEST(Wire, UnknownFaultCodeIsAPeerFaultAndTruncatedOnesAreErrors) {
  ByteWriter out;
  out.u32(4711);
  out.u32(1);
  out.string("x");
  EXPECT_EQ(decode_fault(out.bytes()).code, ErrorCode::peer);
  const std::span whole(out.bytes());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    testing::expect_error(ErrorCode::peer, {"early"}, [&] { (void)decode_fault(whole.first(length)); });
  }
}

}  // namespace
}  // namespace moelink
