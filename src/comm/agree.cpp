#include "comm/agree.hpp"

#include <algorithm>
#include <exception>

#include "base/text.hpp"

namespace moelink {
namespace {

Bytes encode(const std::vector<ConfigField>& fields) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(fields.size()));
  for (const ConfigField& field : fields) {
    out.string(field.name);
    out.string(field.value);
  }
  return out.take();
}

std::vector<ConfigField> decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  std::vector<ConfigField> fields;
  for (std::uint32_t left = in.u32(); left > 0; --left) {
    std::string name = in.string();
    fields.push_back({std::move(name), in.string()});
  }
  return fields;
}

std::string describe(const ConfigField* field) {
  return field == nullptr ? "nothing" : text(field->name, " = ", field->value);
}

/// Empty if `theirs` equals `first`, the fields of rank 0.
std::string difference(int rank, const std::vector<ConfigField>& theirs, const std::vector<ConfigField>& first) {
  for (std::size_t i = 0; i < std::max(theirs.size(), first.size()); ++i) {
    const ConfigField* mine = i < theirs.size() ? &theirs[i] : nullptr;
    const ConfigField* expected = i < first.size() ? &first[i] : nullptr;
    if (mine != nullptr && expected != nullptr && mine->name == expected->name) {
      if (mine->value != expected->value) {
        return text("rank ", rank, " has ", describe(mine), " where rank 0 has ", expected->value);
      }
    } else {
      return text("rank ", rank, " has ", describe(mine), " where rank 0 has ", describe(expected));
    }
  }
  return "";
}

}  // namespace

void compare_over_ranks(Bootstrap& bootstrap, std::string_view what, const std::vector<ConfigField>& fields,
                        std::chrono::milliseconds deadline) {
  const auto parts = bootstrap.all_gather(text(what, ": configuration"), encode(fields), deadline);
  const auto first = decode(parts.front());
  for (std::size_t r = 1; r < parts.size(); ++r) {
    const std::string found = difference(static_cast<int>(r), decode(parts[r]), first);
    if (!found.empty()) {
      throw Error(ErrorCode::mismatch, text(what, ": ", found, "; every rank must pass the same"));
    }
  }
}

void agree_over_ranks(Bootstrap& bootstrap, std::string_view what, const std::function<void()>& body,
                      std::chrono::milliseconds deadline) {
  std::exception_ptr mine;
  std::string words;
  try {
    body();
  } catch (const std::exception& error) {
    mine = std::current_exception();
    words = error.what();
    words.resize(std::min(words.size(), kMaxContributionBytes / 2));
    if (words.empty()) {
      words = "an error without words";
    }
    // The rank that it waited for will not come to what follows either.
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && known->code() == ErrorCode::timeout) {
      bootstrap.abort({ErrorCode::timeout, bootstrap.rank(), words});
    }
  }
  const auto parts = bootstrap.all_gather(what, bytes_of(words), deadline);
  if (mine) {
    std::rethrow_exception(mine);
  }
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (!parts[r].empty()) {
      throw Error(ErrorCode::peer, text(what, ": rank ", r, " failed: ",
                                        std::string(reinterpret_cast<const char*>(parts[r].data()), parts[r].size())));
    }
  }
}

}  // namespace moelink
