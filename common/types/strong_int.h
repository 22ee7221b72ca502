// StrongInt: an integer that cannot be mixed with another kind of integer by accident.
//
// Comparable, hashable by Abseil, printable through value(). Thread safety: a value.
#ifndef CAPSTAN_COMMON_TYPES_STRONG_INT_H_
#define CAPSTAN_COMMON_TYPES_STRONG_INT_H_

#include <compare>
#include <utility>

namespace capstan {

template <typename Tag, typename Value>
class StrongInt {
 public:
  using ValueType = Value;

  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Value value) : value_(value) {}

  constexpr Value value() const { return value_; }
  constexpr StrongInt Next() const { return StrongInt(value_ + 1); }
  constexpr StrongInt& operator++() {
    ++value_;
    return *this;
  }

  friend constexpr auto operator<=>(const StrongInt&, const StrongInt&) = default;
  friend constexpr bool operator==(const StrongInt&, const StrongInt&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const StrongInt& id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Value value_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_STRONG_INT_H_
