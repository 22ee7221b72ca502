// A library that is no plugin.
extern "C" int CapstanNoPlugin();
extern "C" int CapstanNoPlugin() { return 0; }
