"""The web shop's tables, and the schema changes while it is in use."""

TABLES = (
    """
    CREATE TABLE customers (
      id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
      public_id BINARY(16) NOT NULL,
      email VARCHAR(190) NOT NULL,
      name VARCHAR(120) NOT NULL,
      born DATE NULL,
      tier ENUM('basic','silver','gold','friends, family') NOT NULL DEFAULT 'basic',
      interests SET('books','games','garden','music','tools') NULL,
      balance DECIMAL(12,2) NOT NULL,
      preferences JSON NULL,
      newsletter TINYINT(1) NOT NULL DEFAULT 0,
      created_at TIMESTAMP(6) NOT NULL,
      last_seen DATETIME(6) NULL,
      PRIMARY KEY (id), UNIQUE KEY (public_id), UNIQUE KEY (email))
    """,
    """
    CREATE TABLE addresses (
      customer_id BIGINT UNSIGNED NOT NULL,
      kind ENUM('billing','shipping','other') NOT NULL,
      line1 VARCHAR(160) NOT NULL,
      city VARCHAR(80) NOT NULL,
      postcode VARCHAR(12) NULL,
      country CHAR(2) NOT NULL,
      PRIMARY KEY (customer_id, kind),
      FOREIGN KEY (customer_id) REFERENCES customers (id))
    """,
    """
    CREATE TABLE categories (
      id SMALLINT UNSIGNED NOT NULL,
      parent_id SMALLINT UNSIGNED NULL,
      name VARCHAR(80) NOT NULL,
      PRIMARY KEY (id),
      FOREIGN KEY (parent_id) REFERENCES categories (id))
    """,
    """
    CREATE TABLE products (
      id INT NOT NULL AUTO_INCREMENT,
      sku VARCHAR(24) NOT NULL,
      category_id SMALLINT UNSIGNED NOT NULL,
      title VARCHAR(200) NOT NULL,
      description TEXT NULL,
      price DECIMAL(10,2) NOT NULL,
      weight_kg DOUBLE NULL,
      stars FLOAT NULL,
      attributes JSON NULL,
      thumbnail VARBINARY(64) NULL,
      min_age TINYINT UNSIGNED NULL,
      model_year YEAR NULL,
      active BIT(1) NOT NULL,
      views INT NOT NULL DEFAULT 0,
      listed_on DATE NOT NULL,
      updated_at TIMESTAMP(6) NOT NULL,
      PRIMARY KEY (id), UNIQUE KEY (sku),
      FOREIGN KEY (category_id) REFERENCES categories (id))
    """,
    """
    CREATE TABLE inventory (
      warehouse SMALLINT NOT NULL,
      sku VARCHAR(24) NOT NULL,
      quantity INT NOT NULL,
      reserved MEDIUMINT NOT NULL DEFAULT 0,
      counted_at DATETIME(3) NULL,
      PRIMARY KEY (warehouse, sku))
    """,
    """
    CREATE TABLE orders (
      id BIGINT NOT NULL AUTO_INCREMENT,
      customer_id BIGINT UNSIGNED NOT NULL,
      status ENUM('placed','paid','packed','shipped','delivered','returned','cancelled') NOT NULL,
      total DECIMAL(12,2) NOT NULL,
      currency CHAR(3) NOT NULL,
      placed_at DATETIME(6) NOT NULL,
      paid_at TIMESTAMP(6) NULL,
      pickup_time TIME NULL,
      note VARCHAR(300) NULL,
      PRIMARY KEY (id), KEY (customer_id),
      FOREIGN KEY (customer_id) REFERENCES customers (id))
    """,
    """
    CREATE TABLE order_items (
      order_id BIGINT NOT NULL,
      line SMALLINT UNSIGNED NOT NULL,
      product_id INT NOT NULL,
      quantity TINYINT UNSIGNED NOT NULL,
      unit_price DECIMAL(10,2) NOT NULL,
      discount DECIMAL(5,4) NOT NULL,
      PRIMARY KEY (order_id, line), KEY (product_id),
      FOREIGN KEY (order_id) REFERENCES orders (id),
      FOREIGN KEY (product_id) REFERENCES products (id))
    """,
    """
    CREATE TABLE payments (
      id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
      order_id BIGINT NOT NULL,
      method ENUM('card','transfer','voucher') NOT NULL,
      amount DECIMAL(12,2) NOT NULL,
      provider_reference BIGINT UNSIGNED NOT NULL,
      receipt VARBINARY(120) NULL,
      state VARCHAR(16) NOT NULL,
      created_at TIMESTAMP(6) NOT NULL,
      PRIMARY KEY (id), KEY (order_id),
      FOREIGN KEY (order_id) REFERENCES orders (id))
    """,
    """
    CREATE TABLE carts (
      customer_id BIGINT UNSIGNED NOT NULL,
      contents JSON NOT NULL,
      changed_at DATETIME(6) NOT NULL,
      PRIMARY KEY (customer_id))
    """,
    """
    CREATE TABLE coupons (
      code VARCHAR(24) COLLATE utf8mb4_0900_bin NOT NULL,
      percent DECIMAL(5,2) NOT NULL,
      valid_until DATE NULL,
      used INT UNSIGNED NOT NULL DEFAULT 0,
      PRIMARY KEY (code))
    """,
)

REVIEWS = """
    CREATE TABLE reviews (
      id BIGINT NOT NULL AUTO_INCREMENT,
      product_id INT NOT NULL,
      customer_id BIGINT UNSIGNED NOT NULL,
      stars TINYINT UNSIGNED NOT NULL,
      body TEXT NULL,
      written_at TIMESTAMP(6) NOT NULL,
      PRIMARY KEY (id), KEY (product_id), KEY (customer_id),
      FOREIGN KEY (product_id) REFERENCES products (id),
      FOREIGN KEY (customer_id) REFERENCES customers (id))
    """

CHANGES = (
    "ALTER TABLE customers ADD COLUMN phone VARCHAR(32) NULL",
    "ALTER TABLE orders ADD COLUMN channel VARCHAR(16) NOT NULL DEFAULT 'web'",
    REVIEWS,
    "ALTER TABLE products MODIFY COLUMN views BIGINT NOT NULL DEFAULT 0",
    "TRUNCATE TABLE coupons",
    "ALTER TABLE products MODIFY COLUMN price DECIMAL(14,2) NOT NULL",
    "ALTER TABLE inventory ADD COLUMN shelf VARCHAR(12) NULL AFTER sku",
)
"""The schema changes in their order, distributed evenly over the run."""
