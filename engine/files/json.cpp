#include "engine/files/json.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/text.hpp"
#include "engine/files/mapped_file.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

// What is copied or printed part by part takes a frame of the stack for each level, and some bytes of a request are
// one.
constexpr int kMostDepth = 64;

// Looks at a document while it is parsed. Remembers the keys of the objects that the parser is in.
class Checks {
 public:
  explicit Checks(const std::string& origin) : origin_(origin) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMostDepth) {
      throw Error(ErrorCode::invalid_argument,
                  text(origin_, " has arrays and objects inside of each other more than ", kMostDepth, " deep"));
    }
    switch (event) {
      case Json::parse_event_t::object_start:
        open_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        open_.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!open_.back().insert(parsed.get<std::string>()).second) {
          throw Error(ErrorCode::invalid_argument,
                      text(origin_, ": the key \"", parsed.get<std::string>(), "\" stands twice in one object"));
        }
        break;
      default:
        break;
    }
    return true;
  }

 private:
  const std::string& origin_;
  std::vector<std::set<std::string>> open_;
};

}  // namespace

Json parse_json(std::string_view source, const std::string& origin) {
  try {
    return Json::parse(source.begin(), source.end(), Checks(origin));
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::invalid_argument, text(origin, " is not valid JSON: ", error.what()));
  }
}

Json read_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string());
}

JsonObject::JsonObject(const Json& value, std::string origin) : value_(&value), origin_(std::move(origin)) {
  if (!value.is_object()) {
    throw Error(ErrorCode::invalid_argument, text(origin_, " is ", value.type_name(), "; expected an object"));
  }
}

void JsonObject::refuse(const std::string& key, const std::string& complaint) const {
  throw Error(ErrorCode::invalid_argument, text(origin_, ": ", key, ' ', complaint));
}

const Json* JsonObject::find(const std::string& key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> JsonObject::integer(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX)) {
    refuse(key, text("is ", value->dump(), "; expected an integer of 64 bits"));
  }
  return value->get<std::int64_t>();
}

std::optional<double> JsonObject::number(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  if (!value->is_number()) {
    refuse(key, text("is ", value->type_name(), "; expected a number"));
  }
  return value->get<double>();
}

std::optional<bool> JsonObject::boolean(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  if (!value->is_boolean()) {
    refuse(key, text("is ", value->type_name(), "; expected true or false"));
  }
  return value->get<bool>();
}

std::optional<std::string> JsonObject::string(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  if (!value->is_string()) {
    refuse(key, text("is ", value->type_name(), "; expected a string"));
  }
  return value->get<std::string>();
}

std::optional<JsonObject> JsonObject::object(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) {
    return {};
  }
  return JsonObject(*value, text(origin_, ": ", key));
}

const std::vector<Json>& JsonObject::array(const std::string& key) const {
  static const Json::array_t kNone;
  const Json* value = find(key);
  if (value == nullptr) {
    return kNone;
  }
  if (!value->is_array()) {
    refuse(key, text("is ", value->type_name(), "; expected an array"));
  }
  return value->get_ref<const Json::array_t&>();
}

}  // namespace moelink::engine
