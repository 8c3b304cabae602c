"""Prices, in cents."""

BULK_FROM = 10
BULK_PERCENT = 15


def line_total(unit_price, quantity):
    """The price of one line of a basket: from BULK_FROM pieces on, BULK_PERCENT less."""
    total = unit_price * quantity
    if quantity > BULK_FROM:
        total -= total * BULK_PERCENT // 100
    return total


def basket_total(lines):
    """The price of a basket, given as pairs of unit price and quantity."""
    return sum(line_total(unit_price, quantity) for unit_price, quantity in lines)
