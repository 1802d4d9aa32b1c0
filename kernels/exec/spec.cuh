// How an algorithm sees its spec. A spec is a C++20 structural type: a plain struct of integers and enums. Algorithms
// are templates over `Exec` and `Spec` and write `spec().top_k`:
//  - on a GPU `Spec` is Static<S>, so that `constexpr int k = spec().top_k;` is a compile-time constant;
//  - on the host it is Runtime<T>, a reference to a value.
// A kernel is a descriptor:
//
//   struct LocalDecode {
//     static constexpr const char* kName = "LocalDecode";  // for people: plans, logs, errors
//     static constexpr const char* kHeader = "moelink/device/moe/local_decode.cuh";  // what defines it
//     using Spec = LocalDispatchSpec;  // has: int threads (block size) and fields(visit) (all fields, in order)
//     using Args = LocalDispatchArgs;  // trivially copyable
//     template <class Exec, class S>
//     MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args);
//   };
//
// and is instantiated on a GPU as entry<LocalDecode, LocalDispatchSpec{...}> (entry.cuh), on the host by calling run.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

template <auto S>
struct Static {
  MOELINK_DEVICE constexpr auto operator()() const { return S; }
};

template <class T>
class Runtime {
 public:
  explicit constexpr Runtime(const T& value) : value_(&value) {}
  MOELINK_DEVICE constexpr const T& operator()() const { return *value_; }

 private:
  const T* value_;
};

}  // namespace moelink
