// Printable: text that came from elsewhere, made harmless for the terminal or log it is shown in.
//
// A log of a task, a name, a note or a message of a peer may hold control characters with which a
// terminal is told to move the cursor, set its title or even type, and characters that reverse the
// order of what is read. Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_OBSERVABILITY_PRINTABLE_H_
#define CAPSTAN_COMMON_OBSERVABILITY_PRINTABLE_H_

#include <string>
#include <string_view>

namespace capstan {

enum class Lines {
  kOne,   // Newlines and tabs are shown as "\n" and "\t".
  kMany,  // Newlines and tabs stay as they are.
};

// Returns `text` with escapes in place of control characters (ASCII's and C1, "\u001b"), of
// Unicode's separators of lines and marks of direction ("\u202e"), and of bytes that are no UTF-8
// ("\x9b").
std::string Printable(std::string_view text, Lines lines = Lines::kOne);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_OBSERVABILITY_PRINTABLE_H_
