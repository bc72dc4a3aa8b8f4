// Stands for the gate where `divvy run` is tested without one: what tells it from other libraries,
// doing nothing.

#include <stdint.h>

void divvy_request_begin(int64_t arrival_ns);
void divvy_request_end(void);

void divvy_request_begin(int64_t arrival_ns) { (void)arrival_ns; }
void divvy_request_end(void) {}
