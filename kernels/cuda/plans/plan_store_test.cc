#include "kernels/cuda/plans/plan_store.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace capstan::kernels::cuda::plan_store_test {
namespace {

constexpr char kOrigin[] = "NVIDIA H100 80GB HBM3 (9.0), cuDNN 91900, cuBLASLt 130000";

// An empty folder, and the messages of the stores that use it.
struct Place {
  Place() {
    static int count = 0;
    folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/plans", count++, "/made");
  }
  PlanStore Open(const std::string& origin = kOrigin) {
    return PlanStore(folder, origin, [this](const std::string& text) { said.push_back(text); });
  }
  std::string folder;
  std::vector<std::string> said;
};

void Overwrite(const std::string& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

TEST_CASE("Kept plans: are what they were, in a form that does not change", "[kernels][cuda]") {
  const KeptPlans plans = {{"b", "engine 2"}, {"a key", "engine 1 2=3"}};
  const std::string text = EncodePlans(kOrigin, plans);
  CHECK(text ==
        "capstan plans 1\nNVIDIA H100 80GB HBM3 (9.0), cuDNN 91900, cuBLASLt 130000\n"
        "a key\tengine 1 2=3\nb\tengine 2\n" +
            text.substr(text.size() - 26));
  REQUIRE_OK_AND_ASSIGN(const KeptPlans again, DecodePlans(text, kOrigin));
  CHECK(again == plans);
  REQUIRE_OK_AND_ASSIGN(const KeptPlans none, DecodePlans(EncodePlans(kOrigin, {}), kOrigin));
  CHECK(none.empty());
}

TEST_CASE("Kept plans: what is cut or changed anywhere is damage", "[kernels][cuda]") {
  const std::string text = EncodePlans(kOrigin, {{"key", "engine 1"}, {"other", "engine 2"}});
  for (size_t i = 0; i < text.size(); ++i) {
    INFO(i);
    CHECK(absl::IsDataLoss(DecodePlans(text.substr(0, i), kOrigin).status()));
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK_FALSE(DecodePlans(changed, kOrigin).ok());
  }
  CHECK(absl::IsDataLoss(DecodePlans(text + "x", kOrigin).status()));
  CHECK_STATUS(DecodePlans("capstan plans 2\nx\nchecksum 0\n", kOrigin),
               absl::StatusCode::kDataLoss, "line 1: expected \"capstan plans 1\"");
  CHECK_STATUS(DecodePlans(text, "another card"), absl::StatusCode::kFailedPrecondition,
               absl::StrCat("it is of ", kOrigin, ", expected another card"));
}

TEST_CASE("Kept plans: of a line that is none, and of too many, it says where", "[kernels][cuda]") {
  CHECK_STATUS(DecodePlans(EncodePlans(kOrigin, {{"key", ""}}), kOrigin),
               absl::StatusCode::kDataLoss, "line 3: expected a key, a tab and a plan");
  KeptPlans many;
  for (int64_t i = 0; i <= kPlansMax; ++i) many.emplace(absl::StrCat("key ", i), "plan");
  CHECK_STATUS(DecodePlans(EncodePlans(kOrigin, many), kOrigin), absl::StatusCode::kDataLoss,
               "expected at most 4096 plans");
}

TEST_CASE("Plan store: the next one has what one was given", "[kernels][cuda]") {
  Place place;
  PlanStore first = place.Open();
  CHECK_FALSE(first.Find("key").has_value());
  first.Add("key", "engine 1");
  first.Add("key", "engine 3");
  CHECK(first.Find("key") == "engine 3");
  PlanStore second = place.Open();
  CHECK(second.Find("key") == "engine 3");
  CHECK_FALSE(second.Find("other").has_value());
  // Both stores write, and no plan is lost.
  second.Add("other", "engine 2");
  first.Add("third", "engine 4");
  const PlanStore third = place.Open();
  CHECK(third.Find("other") == "engine 2");
  CHECK(third.Find("third") == "engine 4");
  CHECK(place.said.empty());
  // No temporary file is left.
  const std::filesystem::directory_iterator files(place.folder);
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("Plan store: what others have written since does not make a file too large",
          "[kernels][cuda]") {
  Place place;
  PlanStore store = place.Open();
  store.Add("key", "engine 1");
  KeptPlans others;
  for (int64_t i = 0; i < kPlansMax; ++i) others.emplace(absl::StrCat("other ", i), "engine 2");
  Overwrite(store.file(), EncodePlans(kOrigin, others));
  store.Add("key", "engine 3");
  PlanStore next = place.Open();
  CHECK(next.Find("key") == "engine 3");
  CHECK(next.Find("other 0") == "engine 2");
  next.Add("one more", "engine 4");
  CHECK_FALSE(place.Open().Find("one more").has_value());
  CHECK(place.said.empty());
}

TEST_CASE("Plan store: another card or library has a file of its own", "[kernels][cuda]") {
  Place place;
  place.Open().Add("key", "engine 1");
  PlanStore other = place.Open("another card");
  CHECK_FALSE(other.Find("key").has_value());
  other.Add("key", "engine 2");
  CHECK(place.Open().Find("key") == "engine 1");
  CHECK(place.said.empty());
}

TEST_CASE("Plan store: a file that is damaged or foreign is ignored with a word, and written anew",
          "[kernels][cuda]") {
  Place place;
  const std::string file = place.Open().file();
  const struct {
    std::string text, said;
  } cases[] = {
      {"no plans", "line 1: it ends too early"},
      {EncodePlans("another card", {{"key", "engine 9"}}),
       "it is of another card, expected NVIDIA"},
      {std::string(static_cast<size_t>(kPlanFileBytesMax) + 1, 'x'), "expected at most 8388608"},
  };
  for (const auto& [text, said] : cases) {
    place.Open().Add("seed", "engine 0");  // Makes the folder.
    Overwrite(file, text);
    place.said.clear();
    PlanStore store = place.Open();
    REQUIRE(place.said.size() == 1);
    CHECK_THAT(place.said[0], Catch::Contains(file) && Catch::Contains(said));
    CHECK_FALSE(store.Find("key").has_value());
    store.Add("key", "engine 5");
    CHECK(place.said.size() == 1);  // Add reads the file again, but does not repeat the message.
    place.said.clear();
    CHECK(place.Open().Find("key") == "engine 5");
    CHECK(place.said.empty());
  }
}

TEST_CASE(
    "Plan store: what cannot be a line is not kept, a file that cannot be written is told once",
    "[kernels][cuda]") {
  Place place;
  PlanStore store = place.Open();
  store.Add("two\nlines", "engine 1");
  store.Add("key", "a\ttab");
  store.Add("key", "");
  store.Add("key", std::string(static_cast<size_t>(kPlanTextMax) + 1, 'x'));
  CHECK_FALSE(store.Find("two\nlines").has_value());
  CHECK_FALSE(store.Find("key").has_value());
  CHECK_FALSE(std::filesystem::exists(store.file()));

  const std::string blocked = std::string(std::getenv("TEST_TMPDIR")) + "/blocked";
  Overwrite(blocked, "a file where a folder is to be");
  place.folder = blocked;
  PlanStore nowhere = place.Open();
  nowhere.Add("key", "engine 1");
  nowhere.Add("other", "engine 2");
  CHECK(nowhere.Find("key") == "engine 1");
  REQUIRE(place.said.size() == 1);
  CHECK_THAT(place.said[0], Catch::Contains("it cannot be written"));
}

}  // namespace
}  // namespace capstan::kernels::cuda::plan_store_test
