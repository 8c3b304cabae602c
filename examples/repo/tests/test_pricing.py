import unittest

from basket.pricing import basket_total, line_total


class Pricing(unittest.TestCase):
    def test_few_pieces_cost_their_price(self):
        self.assertEqual(line_total(250, 9), 2250)

    def test_the_tenth_piece_makes_all_cheaper(self):
        self.assertEqual(line_total(100, 10), 850)

    def test_a_basket_is_the_sum_of_its_lines(self):
        self.assertEqual(basket_total([(100, 1), (200, 20)]), 3500)


if __name__ == "__main__":
    unittest.main()
