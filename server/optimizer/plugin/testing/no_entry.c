// A library that is no plugin.
int capstan_other_function(void);
int capstan_other_function(void) { return 0; }
