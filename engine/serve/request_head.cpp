#include "engine/serve/request_head.hpp"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "engine/base/text.hpp"

namespace moelink::engine {
namespace {

bool same_word(const std::string& one, const char* other) { return strcasecmp(one.c_str(), other) == 0; }
bool begins_with_word(const std::string& one, const char* other) {
  return strncasecmp(one.c_str(), other, std::strlen(other)) == 0;
}

}  // namespace

bool announces_body(const httplib::Request& request) {
  return request.has_header("Transfer-Encoding") ||
         (request.has_header("Content-Length") && request.get_header_value("Content-Length") != "0");
}

void check_body_head(const httplib::Request& request, std::size_t max_bytes) {
  const std::string encoding = request.get_header_value("Content-Encoding");
  if (!encoding.empty() && !same_word(encoding, "identity")) {
    throw RefusedUnread(415, text("Content-Encoding is ", encoding, "; send the body as it is"));
  }
  // httplib reads parts, or refuses them, in a way that may leave some of the body unread.
  const std::string type = request.get_header_value("Content-Type");
  if (begins_with_word(type, "multipart/")) {
    throw RefusedUnread(415, text("Content-Type is ", type, "; expected application/json"));
  }
  const std::size_t num_lengths = request.get_header_value_count("Content-Length");
  if (request.has_header("Transfer-Encoding")) {
    const std::string transfer = request.get_header_value("Transfer-Encoding");
    if (num_lengths > 0) {
      throw RefusedUnread(400, "there are Content-Length and Transfer-Encoding; send one of them");
    }
    if (request.get_header_value_count("Transfer-Encoding") > 1 || !same_word(transfer, "chunked")) {
      throw RefusedUnread(400, text("Transfer-Encoding is ", transfer, "; chunked is what is taken"));
    }
    return;
  }
  if (num_lengths == 0) {
    throw RefusedUnread(411, "there is no Content-Length; say how long the body is, or send it in chunks");
  }
  const std::string length = request.get_header_value("Content-Length");
  const bool is_number =
      !length.empty() && std::all_of(length.begin(), length.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (num_lengths > 1 || !is_number) {
    throw RefusedUnread(400, num_lengths > 1 ? "there are several Content-Lengths; send one"
                                             : text("Content-Length is ", length, "; expected a number of bytes"));
  }
  std::size_t size = 0;
  const auto parsed = std::from_chars(length.data(), length.data() + length.size(), size);
  if (parsed.ec != std::errc() || size > max_bytes) {
    throw RefusedUnread(413, text("the body has ", length, " bytes; at most ", max_bytes, " bytes are taken"));
  }
}

}  // namespace moelink::engine
