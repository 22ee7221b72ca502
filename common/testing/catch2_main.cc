// The main of every Catch2 test, compiled once (Catch2 v2's main takes seconds to compile).
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
