#include "common/command_line/command.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"

namespace capstan {
namespace {

constexpr int kExitUsage = 2;
constexpr size_t kNameLengthMax = 32;

// CLI11 lets a configuration file win over the environment; this reader leaves out what the
// environment sets.
class EnvironmentFirst final : public CLI::ConfigTOML {
 public:
  explicit EnvironmentFirst(const CLI::App* app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> found = CLI::ConfigTOML::from_config(input);
    for (CLI::ConfigItem& item : found) {
      if (!IsPlain(item.fullname())) item = {.parents = {}, .name = "a line that names no flag"};
    }
    std::erase_if(found, [this](const CLI::ConfigItem& item) { return InEnvironment(item.name); });
    return found;
  }

 private:
  // CLI11 shows the name of an unknown flag. Without a '=' that is the whole line, which may be a
  // secret of another file. ("++" and "--" stand for begin and end of a section.)
  static bool IsPlain(const std::string& name) {
    return name.size() <= kNameLengthMax &&
           std::all_of(name.begin(), name.end(), [](unsigned char c) {
             return absl::ascii_islower(c) || std::strchr("-_.+", c) != nullptr;
           });
  }

  bool InEnvironment(const std::string& name) const {
    const CLI::Option* option = app_->get_option_no_throw("--" + name);
    if (option == nullptr || option->get_envname().empty()) return false;
    const char* value = std::getenv(option->get_envname().c_str());
    return value != nullptr && *value != '\0';
  }

  const CLI::App* app_;  // It owns this object.
};

}  // namespace

Option Option::Required() const { return Option(option_->required()); }
Option Option::ValueName(const std::string& name) const { return Option(option_->type_name(name)); }
Option Option::ShowDefault() const { return Option(option_->capture_default_str()); }
Option Option::Hidden() const { return Option(option_->group("")); }

Option Option::Between(int64_t low, int64_t high) const {
  return Option(option_->check(CLI::Range(low, high)));
}

Option Option::BetweenReals(double low, double high) const {
  return Option(option_->check(CLI::Range(low, high)));
}

Option Option::NotNegative() const { return Option(option_->check(CLI::NonNegativeNumber)); }

Option Option::OneOf(const std::vector<std::string>& values) const {
  return Option(option_->check(CLI::IsMember(values)));
}

Option Option::Check(const std::function<std::string(const std::string& value)>& check) const {
  return Option(option_->check(check));
}

Option Option::InBytes() const {
  return Option(option_->transform(CLI::AsSizeValue(/*kb_is_1000=*/false)));
}

Option Option::OneValueEach() const { return Option(option_->allow_extra_args(false)); }
Option Option::SeparatedBy(char delimiter) const { return Option(option_->delimiter(delimiter)); }
Option Option::LastCounts() const { return Option(option_->take_last()); }

Option Option::FromEnvironment(const std::string& variable) const {
  return Option(option_->envname(variable));
}

Option Option::Excludes(Option other) const { return Option(option_->excludes(other.option_)); }
Option Option::Needs(Option other) const { return Option(option_->needs(other.option_)); }

template <typename T>
Option Command::AddOption(const std::string& names, T& value, const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}

template Option Command::AddOption(const std::string&, std::string&, const std::string&) const;
template Option Command::AddOption(const std::string&, int&, const std::string&) const;
template Option Command::AddOption(const std::string&, int64_t&, const std::string&) const;
template Option Command::AddOption(const std::string&, uint64_t&, const std::string&) const;
template Option Command::AddOption(const std::string&, double&, const std::string&) const;
template Option Command::AddOption(const std::string&, std::optional<std::string>&,
                                   const std::string&) const;
template Option Command::AddOption(const std::string&, std::optional<int>&,
                                   const std::string&) const;
template Option Command::AddOption(const std::string&, std::optional<uint64_t>&,
                                   const std::string&) const;
template Option Command::AddOption(const std::string&, std::vector<std::string>&,
                                   const std::string&) const;
template Option Command::AddOption(const std::string&, std::vector<int>&, const std::string&) const;
template Option Command::AddOption(const std::string&, std::vector<int64_t>&,
                                   const std::string&) const;
template Option Command::AddOption(const std::string&, std::vector<uint64_t>&,
                                   const std::string&) const;

Option Command::AddFlag(const std::string& names, bool& value, const std::string& help) const {
  return Option(app_->add_flag(names, value, help));
}

Command Command::AddCommand(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

void Command::SetFooter(const std::string& text) const { app_->footer(text); }
void Command::RequireCommand() const { app_->require_subcommand(1); }
void Command::OnNamed(std::function<void()> call) const { app_->callback(std::move(call)); }

void Command::OnNamedWith(
    std::function<void(const std::vector<std::string>& arguments)> call) const {
  app_->set_help_flag();
  app_->prefix_command();
  app_->callback([app = app_, call = std::move(call)] { call(app->remaining()); });
}

std::string Command::Name() const { return app_->get_name(); }

std::vector<std::string> Command::CommandNames() const {
  std::vector<std::string> names;
  for (const CLI::App* command : app_->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

Command Command::Find(const std::string& name) const { return Command(app_->get_subcommand(name)); }

Program::Program(const std::string& description, const std::string& name)
    : Command(nullptr), owned_(std::make_unique<CLI::App>(description, name)) {
  app_ = owned_.get();
}

Program::~Program() = default;

void Program::AddVersion(const std::string& text) { app_->set_version_flag("--version", text); }

void Program::AddConfigFile() {
  app_->set_config("--config", "", "Read flags from this file: lines of `flag = value`");
  app_->config_formatter(std::make_shared<EnvironmentFirst>(app_));
  app_->allow_config_extras(CLI::config_extras_mode::error);
}

std::optional<int> Program::Parse(int argc, const char* const* argv) {
  return Parse(argc, argv, std::cout);
}

std::optional<int> Program::Parse(int argc, const char* const* argv, std::ostream& out) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {  // CLI11 reports everything this way, also --help.
    return app_->exit(error, out, std::cerr) == 0 ? 0 : kExitUsage;
  }
}

}  // namespace capstan
