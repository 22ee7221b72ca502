// Switches the checksums of frames off, in the server that push_pull_cost compares with.
#include "common/planted/planted_bug.h"

namespace capstan {

bool PlantedBugIs(PlantedBug bug) { return bug == PlantedBug::kIgnoreFrameChecksum; }

}  // namespace capstan
