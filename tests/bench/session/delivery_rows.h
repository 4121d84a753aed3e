// The state machine of delivery alone: operations a second, and memory.
#pragma once

#include <cstdint>

namespace cpshard::bench {

struct DeliveryRates {
  int64_t steps = 0;       // that all ranks have consumed
  int64_t operations = 0;  // calls of Delivery
  double operations_per_second = 0;
  int64_t heap_growth = 0;  // bytes on the heap at the end, less those after a tenth of the steps
};

DeliveryRates MeasureDelivery(int64_t steps);

}  // namespace cpshard::bench
