#include "divvy_gate.h"

void MarkInC(void (*work)(void));

void MarkInC(void (*work)(void)) {
  divvy_request_begin(0);
  work();
  divvy_request_end();
}
