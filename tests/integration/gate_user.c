// A program's own library that marks requests: it asks for the gate's functions and has none.

void divvy_request_begin(long arrival_ns) __attribute__((weak));

void BeginOurs(void);

void BeginOurs(void) {
  if (divvy_request_begin) divvy_request_begin(0);
}
