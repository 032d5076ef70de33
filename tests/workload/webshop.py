"""A web shop at work: realistic transactions on related tables, the same for the same seed."""

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

from tests.workload.schema import CHANGES, TABLES
from tests.workload.shop_base import Action, Connection, Order, Product, Remember, ShopBase
from tests.workload.values import WORDS

NEXT_STATUS = {
    "placed": "paid",
    "paid": "packed",
    "packed": "shipped",
    "shipped": "delivered",
    "delivered": "returned",
}


class WebShop(ShopBase):
    """Fills and changes the shop's database through one connection.

    `changes` counts the row changes that were committed since the object was created. Every value, including times,
    is computed from the seed, so that equal seeds write equal rows.
    """

    def __init__(self, connection: Connection, seed: int = 1) -> None:
        super().__init__(connection, seed)
        self._schema_changes = list(CHANGES)
        self._columns: set[str] = set()

    # -- filling ------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Create the tables and insert the rows that exist before the snapshot."""
        for statement in TABLES:
            self._run(statement)
        for number in range(1, 25):
            self._insert(
                "categories", id=number, parent_id=number // 5 or None, name=self.values.words(1, 2).title()
            )
        self._commit()
        self._repeat(260, self._new_product)
        self._repeat(420, self._new_customer)
        self._repeat(600, self._new_order)
        self._repeat(150, self._fill_cart)
        self._repeat(30, self._new_coupon)
        self.changes = 0

    def _repeat(self, times: int, action: Action) -> None:
        for _ in range(times):
            self._transact(action)

    # -- working ------------------------------------------------------------------------------------------

    def work(self, changes: int, on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Run transactions, with schema changes in between, until at least `changes` rows were changed."""
        step = changes // (len(self._schema_changes) + 1)
        due = [step * (n + 1) for n in range(len(self._schema_changes))]
        actions, weights = zip(*self._actions(), strict=True)
        while self.changes < changes:
            if due and self.changes >= due[0]:
                due.pop(0)
                self._change_schema()
            self._transact(self.values.random.choices(actions, weights)[0])
            on_progress(self.changes)

    def _actions(self) -> list[tuple[Action, int]]:
        return [
            (self._new_order, 26),
            (self._advance_order, 34),
            (self._abandoned_checkout, 3),
            (self._fill_cart, 14),
            (self._empty_cart, 6),
            (self._change_prices, 8),
            (self._restock, 8),
            (self._new_customer, 3),
            (self._edit_customer, 12),
            (self._move_house, 4),
            (self._remove_old_order, 3),
            (self._new_product, 1),
            (self._relabel_product, 2),
            (self._new_coupon, 3),
            (self._use_coupon, 3),
            (self._review, 6),
        ]

    def _change_schema(self) -> None:
        statement = self._schema_changes.pop(0)
        self._run(statement)
        self._rows = 0
        self._columns.update(
            name for name in ("phone", "channel", "shelf", "reviews") if name in statement.split("(")[0]
        )
        if statement.startswith("TRUNCATE"):
            # Some of the codes are inserted again, as new rows.
            again, self.stock.coupons = self.stock.coupons[:10], []
            for code in again:
                self._insert("coupons", code=code, percent=self.values.money(1, 50))
                self.stock.coupons.append(code)
            self._commit()

    # -- transactions: each returns what to remember after the commit, None to roll back -------------------

    def _new_customer(self) -> Remember:
        name = self.values.name()
        extra = (
            {"phone": self.values.maybe(f"+{self.values.random.randint(10**9, 10**11)}")}
            if "phone" in self._columns
            else {}
        )
        number = self._insert(
            "customers",
            public_id=self.values.uuid().bytes,
            email=f"{self.values.random.getrandbits(48):x}@example.org",
            name=name,
            born=self.values.maybe(self.values.day()),
            tier=self.values.random.choice(("basic", "basic", "silver", "gold", "friends, family")),
            interests=self.values.maybe(
                ",".join(self.values.maybe(t) or "music" for t in ("books", "games"))
            ),
            balance=self.values.money(-50, 500),
            preferences=self.values.maybe(self.values.preferences()),
            newsletter=self.values.random.randint(0, 1),
            created_at=self.values.now(),
            last_seen=None,
            **extra,
        )
        self._address(number, "billing")
        if self.values.random.random() < 0.5:
            self._address(number, "shipping")
        return lambda: self.stock.customers.append(number)

    def _address(self, customer: int, kind: str) -> None:
        city, country = self.values.city()
        self._insert(
            "addresses",
            customer_id=customer,
            kind=kind,
            line1=f"{self.values.words(1, 2).title()} {self.values.random.randint(1, 200)}",
            city=city,
            postcode=self.values.maybe(str(self.values.random.randint(1000, 99999))),
            country=country,
        )

    def _new_product(self) -> Remember:
        sku, price = self.values.sku(), self.values.money(1, 900)
        number = self._insert(
            "products",
            sku=sku,
            category_id=self.values.random.randint(1, 24),
            title=self.values.words(2, 4).title(),
            description=self.values.maybe(self.values.words(8, 30)),
            price=price,
            weight_kg=self.values.maybe(self.values.random.uniform(0.01, 80)),
            stars=self.values.maybe(self.values.random.randint(10, 50) / 10),
            attributes=self.values.maybe(self.values.preferences()),
            thumbnail=self.values.maybe(self.values.random.randbytes(self.values.random.randint(0, 48))),
            min_age=self.values.maybe(self.values.random.randint(0, 255)),
            model_year=self.values.maybe(self.values.random.randint(1990, 2025)),
            active=self.values.random.randint(0, 1),
            listed_on=self.values.now().date(),
            updated_at=self.values.now(),
        )
        for warehouse in self.values.random.sample((1, 2, 3), 2):
            self._insert(
                "inventory", warehouse=warehouse, sku=sku, quantity=self.values.random.randint(0, 500)
            )
        return lambda: self.stock.products.append(Product(number, sku, price))

    def _new_order(self) -> Remember:
        products = self.values.random.sample(self.stock.products, self.values.random.randint(1, 5))
        quantities = [self.values.random.randint(1, 4) for _ in products]
        total = sum((p.price * q for p, q in zip(products, quantities, strict=True)), Decimal(0))
        placed = self.values.now()
        extra = (
            {"channel": self.values.random.choice(("web", "app", "phone"))}
            if "channel" in self._columns
            else {}
        )
        number = self._insert(
            "orders",
            customer_id=self.values.random.choice(self.stock.customers),
            status="placed",
            total=total,
            currency="EUR",
            placed_at=placed,
            pickup_time=self.values.maybe(timedelta(minutes=self.values.random.randint(0, 1439)), 0.2),
            note=self.values.maybe(self.values.words(2, 8) + " 🙏", 0.15),
            **extra,
        )
        for line, (product, quantity) in enumerate(zip(products, quantities, strict=True), 1):
            self._insert(
                "order_items",
                order_id=number,
                line=line,
                product_id=product.id,
                quantity=quantity,
                unit_price=product.price,
                discount=Decimal(self.values.random.choice((0, 0, 500, 1250))) / 10000,
            )
            self._run(
                "UPDATE inventory SET quantity = quantity - %s, reserved = reserved + 1 "
                "WHERE sku = %s LIMIT 1",
                quantity,
                product.sku,
            )
        if self.values.random.random() < 0.6:
            self._pay(number, total)
        return lambda: self.stock.orders.append(Order(number, "placed", total, len(products)))

    def _pay(self, order: int, amount: Decimal) -> None:
        self._insert(
            "payments",
            id=str(self.values.uuid()),
            order_id=order,
            method=self.values.random.choice(("card", "transfer", "voucher")),
            amount=amount,
            provider_reference=self.values.random.getrandbits(64),
            receipt=self.values.maybe(self.values.random.randbytes(self.values.random.randint(0, 40))),
            state="authorised",
            created_at=self.values.now(),
        )

    def _abandoned_checkout(self) -> None:
        self._new_order()

    def _advance_order(self) -> Remember:
        order = self.values.random.choice(self.stock.orders[-400:])
        status = NEXT_STATUS.get(order.status, order.status)
        if order.status == "placed":
            if self.values.random.random() < 0.08:
                status = "cancelled"
            else:
                self._run("UPDATE payments SET state = 'captured' WHERE order_id = %s", order.id)
        paid = ", paid_at = %s" if status == "paid" else ""
        self._run(
            f"UPDATE orders SET status = %s{paid} WHERE id = %s",
            *((status, self.values.now(), order.id) if paid else (status, order.id)),
        )

        def remember() -> None:
            order.status = status

        return remember

    def _remove_old_order(self) -> Remember | None:
        order = self.values.random.choice(self.stock.orders[: len(self.stock.orders) // 2])
        self._run("DELETE FROM payments WHERE order_id = %s", order.id)
        self._run("DELETE FROM order_items WHERE order_id = %s", order.id)
        self._run("DELETE FROM orders WHERE id = %s", order.id)
        return lambda: self.stock.orders.remove(order)

    def _fill_cart(self) -> Remember:
        customer = self.values.random.choice(self.stock.customers)
        contents = json.dumps(
            {
                p.sku: self.values.random.randint(1, 9)
                for p in self.values.random.sample(self.stock.products, 3)
            }
        )
        if customer in self.stock.carts:
            self._run(
                "UPDATE carts SET contents = %s, changed_at = %s WHERE customer_id = %s",
                contents,
                self.values.now(),
                customer,
            )
            if self.values.random.random() < 0.2:  # deleted and inserted again within one transaction
                self._run("DELETE FROM carts WHERE customer_id = %s", customer)
                self._insert("carts", customer_id=customer, contents="{}", changed_at=self.values.now())
        else:
            self._insert("carts", customer_id=customer, contents=contents, changed_at=self.values.now())
        return lambda: self.stock.carts.add(customer)

    def _empty_cart(self) -> Remember | None:
        if not self.stock.carts:
            return None
        customer = self.values.random.choice(sorted(self.stock.carts))
        self._run("DELETE FROM carts WHERE customer_id = %s", customer)
        return lambda: self.stock.carts.discard(customer)

    def _change_prices(self) -> Remember:
        chosen = self.values.random.sample(self.stock.products, 4)
        prices = [
            max(
                Decimal("0.05"),
                (p.price * self.values.random.randint(80, 125) / 100).quantize(Decimal("0.01")),
            )
            for p in chosen
        ]
        for product, price in zip(chosen, prices, strict=True):
            self._run(
                "UPDATE products SET price = %s, views = views + %s, updated_at = %s WHERE id = %s",
                price,
                self.values.random.randint(1, 2000),
                self.values.now(),
                product.id,
            )

        def remember() -> None:
            for product, price in zip(chosen, prices, strict=True):
                product.price = price

        return remember

    def _restock(self) -> Remember:
        for product in self.values.random.sample(self.stock.products, 3):
            shelf = f"S{self.values.random.randint(1, 99)}"
            more = f", shelf = '{shelf}'" if "shelf" in self._columns else ""
            self._run(
                "UPDATE inventory SET quantity = quantity + %s, reserved = 0, counted_at = %s"
                f"{more} WHERE sku = %s",
                self.values.random.randint(1, 90),
                self.values.now().replace(microsecond=self.values.random.randint(0, 999) * 1000),
                product.sku,
            )
        return _nothing

    def _edit_customer(self) -> Remember:
        customer = self.values.random.choice(self.stock.customers)
        phone = f"+{self.values.random.randint(10**9, 10**11)}"
        more = f", phone = '{phone}'" if "phone" in self._columns else ""
        self._run(
            "UPDATE customers SET last_seen = %s, preferences = %s, balance = balance + %s"
            f"{more} WHERE id = %s",
            self.values.now(),
            self.values.maybe(self.values.preferences()),
            self.values.money(-20, 20),
            customer,
        )
        return _nothing

    def _move_house(self) -> Remember:
        """Change a part of a key: the shipping address, if there is one."""
        customer = self.values.random.choice(self.stock.customers)
        self._run("DELETE FROM addresses WHERE customer_id = %s AND kind = 'other'", customer)
        self._run(
            "UPDATE addresses SET kind = 'other' WHERE customer_id = %s AND kind = 'shipping'", customer
        )
        self._address(customer, "shipping")
        return _nothing

    def _relabel_product(self) -> Remember:
        """Change the key of the stock rows."""
        product, sku = self.values.random.choice(self.stock.products), self.values.sku()
        self._run("UPDATE products SET sku = %s WHERE id = %s", sku, product.id)
        self._run("UPDATE inventory SET sku = %s WHERE sku = %s", sku, product.sku)

        def remember() -> None:
            product.sku = sku

        return remember

    def _new_coupon(self) -> Remember:
        code = f"{self.values.random.choice(WORDS)}-{self.values.random.getrandbits(32):08x}"
        self._insert(
            "coupons",
            code=code,
            percent=self.values.money(1, 60),
            valid_until=self.values.maybe(self.values.now().date()),
        )
        return lambda: self.stock.coupons.append(code)

    def _use_coupon(self) -> Remember | None:
        if not self.stock.coupons:
            return None
        code = self.values.random.choice(self.stock.coupons)
        renamed = code.swapcase()
        if self.values.random.random() < 0.3:  # a key that differs only in letter case is another key
            self._run("UPDATE coupons SET code = %s, used = used + 1 WHERE code = %s", renamed, code)
            return lambda: self.stock.coupons.__setitem__(self.stock.coupons.index(code), renamed)
        self._run("UPDATE coupons SET used = used + 1 WHERE code = %s", code)
        return _nothing

    def _review(self) -> Remember | None:
        if "reviews" not in self._columns:
            return None
        self._insert(
            "reviews",
            product_id=self.values.random.choice(self.stock.products).id,
            customer_id=self.values.random.choice(self.stock.customers),
            stars=self.values.random.randint(1, 5),
            body=self.values.maybe(self.values.words(3, 25) + self.values.random.choice((" 👍", ""))),
            written_at=self.values.now(),
        )
        return _nothing


def _nothing() -> None:
    """Change no state."""
