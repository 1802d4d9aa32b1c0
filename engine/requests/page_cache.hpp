// Who has which page of the cache of keys and values, and which pages hold what a new request would compute again.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer/bpe.hpp"

namespace moelink::engine {

/// Pages are counted references. A full page may be published: its content is then found by the tokens that it and all
/// pages before it hold, also when nobody has it any more, until its place is needed. Contents are compared token by
/// token, so that a collision of hashes cannot show a request another's keys. Not safe for several threads.
class PageCache {
 public:
  PageCache(std::int64_t num_pages, std::int64_t page_size);

  /// What a page holds: its tokens, behind what another page holds. Equal exactly for equal tokens from the start.
  using Content = std::uint64_t;
  static constexpr Content kStart = 0;  ///< in front of the first page

  struct Prefix {
    std::vector<std::int32_t> pages;
    Content content = kStart;  ///< of the last
  };
  /// The longest run of known pages that `tokens` starts with. The caller gets a reference to each.
  [[nodiscard]] Prefix find(std::span<const Token> tokens);

  /// A page that nobody has, with one reference: the caller's. Its content, if it had one, is forgotten: that of a page
  /// without content, else of the one that was released longest ago. None if every page is somebody's.
  [[nodiscard]] std::optional<std::int32_t> allocate();

  /// Makes known that `page`, which the caller has, holds these page_size tokens behind `before`. Nobody may write it
  /// from now on.
  Content publish(std::int32_t page, Content before, std::span<const Token> tokens);

  /// Gives one reference back. Pages of a sequence are released last one first: what is released first is forgotten
  /// first, and a page whose predecessor is forgotten cannot be found.
  void release(std::int32_t page);

  [[nodiscard]] std::int64_t num_pages() const noexcept { return static_cast<std::int64_t>(pages_.size()); }
  [[nodiscard]] std::int64_t page_size() const noexcept { return page_size_; }
  /// Pages that nobody has.
  [[nodiscard]] std::int64_t num_free() const noexcept { return static_cast<std::int64_t>(free_.size()); }

 private:
  struct Key {
    Content before = kStart;
    std::vector<Token> tokens;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct HashOfKey {
    [[nodiscard]] std::size_t operator()(const Key& key) const noexcept;
  };
  struct Known {
    std::int32_t page = 0;
    Content content = kStart;
  };
  struct Page {
    std::int64_t num_references = 0;
    std::list<std::int32_t>::iterator place;  ///< in free_, while there are no references
    const Key* key = nullptr;                 ///< in known_, if this page is found by it
  };

  [[nodiscard]] Page& at(std::int32_t page) { return pages_[static_cast<std::size_t>(page)]; }
  void forget(Page& page);

  std::int64_t page_size_;
  std::vector<Page> pages_;
  std::list<std::int32_t> free_;  ///< in the order in which they are allocated
  std::unordered_map<Key, Known, HashOfKey> known_;
  Content last_content_ = kStart;
};

}  // namespace moelink::engine
