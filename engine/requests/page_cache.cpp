#include "engine/requests/page_cache.hpp"

namespace moelink::engine {

std::size_t PageCache::HashOfKey::operator()(const Key& key) const noexcept {
  std::uint64_t hash = key.before + 0x9e3779b97f4a7c15U;
  for (const Token token : key.tokens) {
    hash = (hash ^ static_cast<std::uint32_t>(token)) * 0xbf58476d1ce4e5b9U;
    hash ^= hash >> 29U;
  }
  return hash;
}

PageCache::PageCache(std::int64_t num_pages, std::int64_t page_size)
    : page_size_(page_size), pages_(static_cast<std::size_t>(num_pages)) {
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    pages_[i].place = free_.insert(free_.end(), static_cast<std::int32_t>(i));
  }
}

PageCache::Prefix PageCache::find(std::span<const Token> tokens) {
  Prefix prefix;
  const auto size = static_cast<std::size_t>(page_size_);
  Key key;
  for (; tokens.size() >= size; tokens = tokens.subspan(size)) {
    key.before = prefix.content;
    key.tokens.assign(tokens.begin(), tokens.begin() + page_size_);
    const auto found = known_.find(key);
    if (found == known_.end()) {
      break;
    }
    Page& page = at(found->second.page);
    if (page.num_references++ == 0) {
      free_.erase(page.place);
    }
    prefix.pages.push_back(found->second.page);
    prefix.content = found->second.content;
  }
  return prefix;
}

std::optional<std::int32_t> PageCache::allocate() {
  if (free_.empty()) {
    return {};
  }
  const std::int32_t index = free_.front();
  free_.pop_front();
  Page& page = at(index);
  forget(page);
  page.num_references = 1;
  return index;
}

void PageCache::forget(Page& page) {
  if (page.key != nullptr) {
    known_.erase(known_.find(*page.key));
    page.key = nullptr;
  }
}

PageCache::Content PageCache::publish(std::int32_t page, Content before, std::span<const Token> tokens) {
  const auto [entry, is_new] =
      known_.try_emplace(Key{.before = before, .tokens = {tokens.begin(), tokens.end()}}, Known{.page = page});
  if (is_new) {  // else another page has the same, which was computed at the same time
    entry->second.content = ++last_content_;
    at(page).key = &entry->first;
  }
  return entry->second.content;
}

void PageCache::release(std::int32_t page) {
  Page& released = at(page);
  if (--released.num_references == 0) {
    released.place = free_.insert(released.key == nullptr ? free_.begin() : free_.end(), page);
  }
}

}  // namespace moelink::engine
