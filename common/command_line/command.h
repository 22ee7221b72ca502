// The command line of a program: its options, flags and commands, with --help and usage errors.
//
//   Program program("capstan-server: holds parameter shards");
//   program.AddOption("--threads", flags.threads, "Threads that compute").Between(1, 256);
//   if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
//
// It hides the parser, CLI11: a file that includes its headers takes five seconds more to compile.
// Thread safety: main thread only.
#ifndef CAPSTAN_COMMON_COMMAND_LINE_COMMAND_H_
#define CAPSTAN_COMMON_COMMAND_LINE_COMMAND_H_

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace capstan {

// A handle of an option, a flag, or an argument without a name, which the program owns. Its
// functions return it again, so that calls can be chained.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option Required() const;
  // The word that stands for the value in --help: "FOLDER".
  Option ValueName(const std::string& name) const;
  // --help shows the value that the variable has now.
  Option ShowDefault() const;
  // --help does not show the option.
  Option Hidden() const;

  Option Between(int64_t low, int64_t high) const;  // Both included.
  Option BetweenReals(double low, double high) const;
  Option NotNegative() const;
  Option OneOf(const std::vector<std::string>& values) const;
  // `check` returns what is wrong with a value, or an empty text.
  Option Check(const std::function<std::string(const std::string& value)>& check) const;
  // Bytes, also as 500MB or 64GB: powers of 1024.
  Option InBytes() const;

  // The option fills a list: each time that it is given, it takes one value.
  Option OneValueEach() const;
  Option SeparatedBy(char delimiter) const;
  // The option has a single value: if it is given twice, the last one counts.
  Option LastCounts() const;
  // If the option is not given, this environment variable's value counts.
  Option FromEnvironment(const std::string& variable) const;

  Option Excludes(Option other) const;
  Option Needs(Option other) const;

 private:
  CLI::Option* option_;
};

// A handle of a command, a group of commands or the whole program, which owns them all.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // `names`: "--data", "-o,--output", or "FILE" for an argument without a name. `value` holds the
  // default and outlives the parsing.
  // T is one of the types that command.cc lists: texts, numbers, and some optionals and vectors.
  template <typename T>
  Option AddOption(const std::string& names, T& value, const std::string& help) const;
  Option AddFlag(const std::string& names, bool& value, const std::string& help) const;
  Command AddCommand(const std::string& name, const std::string& description) const;

  // Sets the text at the end of --help.
  void SetFooter(const std::string& text) const;
  // The command line has to name one of the commands.
  void RequireCommand() const;
  // Called at the end of the parsing if this command was named.
  void OnNamed(std::function<void()> call) const;
  // Same as OnNamed, for a command without options: `call` gets all that follows its name, also
  // --help.
  void OnNamedWith(std::function<void(const std::vector<std::string>& arguments)> call) const;

  std::string Name() const;
  std::vector<std::string> CommandNames() const;
  // The command of that name. REQUIRES: it is one of CommandNames().
  Command Find(const std::string& name) const;

 protected:
  CLI::App* app_;
};

class Program : public Command {
 public:
  // `name`: for --help; empty: that of argv[0].
  explicit Program(const std::string& description, const std::string& name = "");
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void AddVersion(const std::string& text);
  // Adds --config=FILE (TOML or INI, `option = value` lines; an unknown name is an error).
  void AddConfigFile();

  // Precedence: command line, environment, --config, default. Returns nothing if the program is to
  // go on, else the exit code to end with: 0 after --help or --version, which go to `out` (without
  // it to standard output); 2 after a usage error, which goes to standard error.
  std::optional<int> Parse(int argc, const char* const* argv);
  std::optional<int> Parse(int argc, const char* const* argv, std::ostream& out);

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_COMMAND_LINE_COMMAND_H_
