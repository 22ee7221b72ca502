// A library that is no plugin, for loader_test.
extern "C" int CapstanNoPlugin();
extern "C" int CapstanNoPlugin() { return 0; }
