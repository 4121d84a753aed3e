"""The parts of the parity check that need no reference: draws, generators, shrinking, judging,
counting."""

import json
import random
import unittest

from case import Case
from decisions import judge
from draw import Draw
from layouts import LAYOUTS, Layout
from shrink import shrink
from tally import Tally, table, was_packed, was_padded
from values import rows, running, scalar

NO_LIMIT = lambda: True  # noqa: E731


def answer(outputs=None, layout=None, **more):
    return [{"rank": 0, "outputs": outputs or {}, "layout": layout, **more}]


def raised(name):
    return [{"rank": 0, "error": name}]


class Draws(unittest.TestCase):
    def test_a_replay_makes_the_same_case(self):
        for layout in LAYOUTS:
            for number in range(40):
                draw = Draw(random.Random(f"{layout.name}/{number}"))
                made = json.dumps(layout.generate(draw).to_json("x"))
                again = json.dumps(layout.generate(Draw(replay=draw.taken)).to_json("x"))
                self.assertEqual(made, again)

    def test_any_list_of_numbers_makes_a_case(self):
        source = random.Random(5)
        for layout in LAYOUTS:
            layout.generate(Draw(replay=[]))
            for _ in range(40):
                replay = [source.randint(0, 50) for _ in range(source.randint(0, 40))]
                layout.generate(Draw(replay=replay))


class Shrinking(unittest.TestCase):
    @staticmethod
    def smallest(draws, fails):
        def costs(candidates):
            return [(sum(c), len(c)) if fails(c) else None for c in candidates]
        return shrink(draws, (sum(draws), len(draws)), costs, NO_LIMIT)

    def test_what_does_not_matter_goes(self):
        self.assertEqual(self.smallest([9, 40, 3, 7, 12], lambda c: 40 in c), [40])

    def test_numbers_go_down_to_the_border(self):
        self.assertEqual(self.smallest([30, 30], lambda c: sum(c) >= 17), [17])

    def test_a_count_and_what_it_counts_go_together(self):
        def fails(c):  # a count, so many numbers, and a mark behind them
            return len(c) > c[0] + 1 and c[0] > 0 and c[c[0] + 1] == 5 if c else False
        self.assertEqual(self.smallest([4, 8, 8, 8, 8, 5], fails), [1, 0, 5])

    def test_without_time_nothing_is_tried(self):
        draws = [4, 4]
        self.assertIs(shrink(draws, (8,), lambda c: self.fail(), lambda: False), draws)


class Judging(unittest.TestCase):
    def test_an_exception_of_the_reference_is_a_refusal(self):
        for error, code in [("KeyError", "INVALID_ARGUMENT"),
                            ("NotImplementedError", "UNIMPLEMENTED")]:
            product = judge(Case("contiguous", 2), raised(error))
            self.assertEqual(product, {"same": True, "expect": {"error": code}})

    def test_a_fault_that_passes_is_left_out(self):
        self.assertIsNone(judge(Case("contiguous", 2, fault="x"), answer()))

    def test_unsigned_labels_are_refused_only_where_they_are_padded(self):
        case = Case("contiguous", 2, batch={"labels": running("u8", [1, 3])})
        padded = answer(layout={"original_seq_len": 3, "padded_seq_len": 4})
        whole = answer(layout={"original_seq_len": 4, "padded_seq_len": 4})
        self.assertEqual(judge(case, padded)["decision"], "D5")
        self.assertEqual(judge(case, whole), {"same": True})

    def test_embeddings_keep_their_type(self):
        case = Case("glm_dsa", 2, batch={"input_ids": running("bf16", [1, 2, 1])})
        product = judge(case, answer({"input_ids": running("i64", [2])}))
        self.assertEqual(product["decision"], "D7")
        made = product["expect"]["ranks"][0]["outputs"]["input_ids"]
        self.assertEqual(made, running("bf16", [2]))

    def test_chunks_keep_media(self):
        case = Case("te_thd", 2, {"num_chunks": 2}, {"note": scalar("n")})
        product = judge(case, answer())
        self.assertEqual(product["expect"]["ranks"][0]["outputs"], {"note": scalar("n")})

    def test_magi_names_pads_by_their_own_slots(self):
        case = Case("magi", 1, {"variant": "custom"})
        outputs = {"labels": {"dtype": "i64", "shape": [3], "data": [501, 502, 0]}}
        layout = {"local_token_global_indices": {"dtype": "i64", "shape": [3], "data": [0, 1, 1]}}
        product = judge(case, answer(outputs, layout, state={"slots": [0, 1, 2], "total": 2}))
        self.assertEqual(product["decision"], "D3,D4")
        [entry] = product["expect"]["ranks"]
        self.assertEqual(entry["outputs"]["labels"]["data"], [501, 502, -100])
        self.assertEqual(entry["layout"]["local_token_global_indices"]["data"], [0, 1, 2])


class Counting(unittest.TestCase):
    def test_padded(self):
        lengths = {"seq_lens": rows("i64", [[2, -1000]]), "seq_lens_padded": rows("i64", [[4]])}
        grown = answer(layout={"original_seq_len": 3, "padded_seq_len": 4})
        self.assertTrue(was_padded(Case("contiguous", 2), grown))
        self.assertTrue(was_padded(Case("te_thd", 2, batch=lengths), answer()))
        self.assertFalse(was_padded(Case("te_thd", 2), answer(layout={"padded_seq_len": 8})))
        self.assertFalse(was_padded(Case("contiguous", 2), raised("KeyError")))

    def test_packed(self):
        indexed = {"attention_mask": rows("i64", [[1, 1, 2]])}
        binary = {"attention_mask": rows("i64", [[1, 1, 0]])}
        self.assertTrue(was_packed(Case("kimi_k3", 2, batch=indexed)))
        self.assertFalse(was_packed(Case("kimi_k3", 2, batch=binary)))

    def test_what_was_never_reached_is_named(self):
        layout = Layout("x", lambda draw: Case("x", None), (None, 2), packed=False,
                        dtypes=("i64", "f16"))
        tally = Tally(layout)
        tally.add(Case("x", None, batch={"a": running("i64", [1])}), answer(), {"same": True})
        self.assertEqual(tally.unreached(), ["padded", "refused", "f16", "cp 2"])

    def test_formula_only_rows_are_not_in_the_total(self):
        tallies = [Tally(Layout("real", Case)), Tally(Layout("formula", Case, formula_only=True))]
        for tally in tallies:
            tally.add(Case("x", 2), raised("KeyError"), {"same": True, "expect": {}})
        lines = table(tallies).splitlines()
        [total] = [line.split() for line in lines if line.startswith("total")]
        self.assertEqual(total, ["total", "1", "1", "-", "1", "-", "-", "-"])
        self.assertIn("formula only", table(tallies))


if __name__ == "__main__":
    unittest.main()
