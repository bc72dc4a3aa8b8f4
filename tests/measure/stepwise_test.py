"""bench/gpu/stepwise.py, where it can be said what must come out."""

import os
import random
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench/gpu"))
import stepwise  # noqa: E402


class Stepwise(unittest.TestCase):
    def test_launches_come_as_fast_as_is_said(self):
        launched = stepwise.launches(5000.0, 1000, 2.0, random.Random(3))
        self.assertEqual(launched, sorted(launched))
        self.assertAlmostEqual(launched[-1], 5000, delta=200)

    def test_kernels_that_are_all_there_run_after_a_slice_and_a_switch(self):
        self.assertEqual(stepwise.beside([10.0] * 5, 3.0, 100.0, 20.0), (10 + 100 + 20 + 5 * 3, 110))

    def test_each_kernel_waits_where_the_gpu_is_given_away_between_two(self):
        # Training has the time until the second is launched, but for two kernels' and two switches' time, and a slice each.
        self.assertEqual(stepwise.beside([10.0, 1000.0], 3.0, 100.0, 20.0), (1000 + 100 + 20 + 3, 10 + 100 + (1000 - 10 - 100 - 20 - 3 - 20) + 100))

    def test_one_that_comes_while_the_gpu_goes_away_waits_for_that_too(self):
        self.assertEqual(stepwise.beside([10.0, 150.0], 3.0, 100.0, 20.0), (10 + 100 + 20 + 3 + 20 + 100 + 20 + 3, 210))

    def test_without_slices_and_switches_it_is_as_alone(self):
        generator = random.Random(5)
        for _ in range(100):
            launched = [generator.random() * 1000]
            while len(launched) < 50:
                launched.append(launched[-1] + 4 + generator.random() * 50)
            end, training = stepwise.beside(launched, 3.0, 0.0, 0.0)
            self.assertAlmostEqual(end, launched[-1] + 3)
            self.assertAlmostEqual(training, end - 50 * 3)

    def test_slices_are_those_of_the_gate(self):
        with open(os.path.join(ROOT, "src/gate/slices.h")) as header, open(os.path.join(ROOT, "src/gate/slices.cc")) as source:
            header, source = header.read().replace("'", ""), source.read()
        self.assertIn(f"kLeastStepwiseUs = {stepwise.LEAST};", header)
        self.assertIn(f"kMostStepwiseUs = {stepwise.MOST};", header)
        tight, balanced = (round(stepwise.PARTS[preset] * 1000) for preset in ("tight", "balanced"))
        self.assertIn(f"part = {tight} + std::uint64_t{{openness}} * {2 * (balanced - tight)} / kNoProtection", source)


if __name__ == "__main__":
    unittest.main()
