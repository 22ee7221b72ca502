// A plugin of GCC with one pragma, `#pragma capstan instantiate`: instantiates the templates that
// the headers before it use. Without it GCC writes them into a precompiled header as still to be
// instantiated, and every file that takes the header does it anew, 2,000 to 4,000 functions each
// (precompiled.bzl). It calls the compiler's own function, so only the GCC that compiled it may
// load it.

#include "gcc-plugin.h"  // Must stand before all others of GCC's headers.

#include "c-family/c-pragma.h"
#include "cp/cp-tree.h"
#include "plugin-version.h"

int plugin_is_GPL_compatible;  // GCC loads no plugin without this name.

namespace {

void InstantiatePending(cpp_reader*) { instantiate_pending_templates(/*retries=*/0); }

void RegisterPragma(void*, void*) {
  c_register_pragma("capstan", "instantiate", InstantiatePending);
}

}  // namespace

int plugin_init(plugin_name_args* info, plugin_gcc_version* compiler) {
  if (!plugin_default_version_check(compiler, &gcc_version)) {
    return 1;
  }
  register_callback(info->base_name, PLUGIN_PRAGMAS, RegisterPragma, nullptr);
  return 0;
}
