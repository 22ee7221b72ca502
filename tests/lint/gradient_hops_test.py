"""Which calls count as hops of a gradient, and where its way begins and ends."""

import unittest

import gradient_hops as hops
from gradient_hops import BEGIN, COMPUTING, END, ENTERED, HANDED_OVER, LEFT


class Names(unittest.TestCase):
    def test_templates_parameters_and_lambdas_are_left_out(self):
        for demangled, name in (
            ("int capstan::Twice<std::vector<int> >(int)::{lambda(int)#1}::operator()(int) const",
             "capstan::Twice"),
            ("capstan::worker::(anonymous namespace)::Net::Run()", "capstan::worker::Net::Run"),
            ("capstan::Y<capstan::X::Run()::{lambda(int)#1}>::Get() const", "capstan::Y::Get"),
            ("capstan::A::Co(capstan::A::Co()::_ZN1AEv.Frame*) [clone .actor]", "capstan::A::Co"),
            ("std::_Function_handler<void (), capstan::Run()::{lambda()#1}>::_M_invoke(int&)", ""),
            ("main", ""),
        ):
            self.assertEqual(hops.plain(demangled), name, demangled)

    def test_constructors_destructors_and_operators_are_no_hops(self):
        for demangled in ("capstan::X<int>::X(int)", "capstan::X::~X()",
                          "capstan::operator<(capstan::X const&, capstan::X const&)",
                          "capstan::X::operator bool() const", "std::sort(int*, int*)"):
            self.assertFalse(hops.is_hop(hops.plain(demangled)), demangled)
        self.assertTrue(hops.is_hop("capstan::X::Run"))


class Way(unittest.TestCase):
    def test_a_step_is_from_the_last_kernel_to_the_parameters(self):
        calls = [
            (1, ENTERED, BEGIN, True), (2, LEFT, HANDED_OVER, True),  # An earlier layer's.
            (3, ENTERED, BEGIN, True), (4, LEFT, BEGIN, True), (5, LEFT, "capstan::Train", True),
            (6, LEFT, HANDED_OVER, True), (7, LEFT, HANDED_OVER, True),
            (8, ENTERED, "capstan::Plan", True), (9, ENTERED, END, True),
            (10, ENTERED, "capstan::Short", False), (11, LEFT, END, True),
            (12, ENTERED, END, True), (13, LEFT, END, True),  # The parameters are there already.
        ]
        (step,) = hops.steps_of(calls)
        self.assertEqual((step.begin, step.handed_over, step.waits, step.end), (3, 7, 9, 11))
        self.assertEqual([call[0] for call in hops.on_the_way(step, calls, computes=True)],
                         [3, 4, 5, 6, 7, 9, 11])
        self.assertEqual([call[0] for call in hops.on_the_way(step, calls, computes=False)],
                         [3, 4, 5, 6, 7, 8, 9, 11])

    def test_what_runs_in_half_of_the_steps_is_left_out(self):
        server, computing = ("server", "capstan::Reader"), ("worker", COMPUTING)
        often = {server: [(30, ENTERED, "capstan::Read", True)],
                 computing: [(40, ENTERED, END, True), (20, ENTERED, BEGIN, True)]}
        rarely = {server: [(31, ENTERED, "capstan::Tick", True), *often[server]]}
        self.assertEqual(hops.stations([(20, often), (20, {**often, **rarely})]),
                         [(computing, [BEGIN, END]), (server, ["capstan::Read"])])


if __name__ == "__main__":
    unittest.main()
