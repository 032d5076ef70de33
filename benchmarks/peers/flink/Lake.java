import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;

/** What the drivers share: their arguments, the catalog, and the tables of both sides. */
public final class Lake {
  /** Debezium's DATETIME(6), microseconds as if in UTC, as a timestamp without zone. */
  public static final class Micros extends ScalarFunction {
    public @DataTypeHint("TIMESTAMP(6)") LocalDateTime eval(long micros) {
      return LocalDateTime.ofEpochSecond(
          Math.floorDiv(micros, 1_000_000L), (int) Math.floorMod(micros, 1_000_000L) * 1000, ZoneOffset.UTC);
    }
  }

  static final String CATALOG_CLASS = "org.apache.iceberg.jdbc.JdbcCatalog";

  private static final String COLUMNS =
      "id BIGINT NOT NULL, quantity INT NOT NULL, amount DECIMAL(12, 2) NOT NULL, status STRING NOT NULL, "
          + "note STRING NOT NULL, updated_at %s NOT NULL, PRIMARY KEY (id) NOT ENFORCED";

  private Lake() {}

  /** Returns the arguments, each of which is name=value. */
  static Map<String, String> options(String[] arguments) {
    Map<String, String> options = new TreeMap<>();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      options.put(pair[0], pair[1]);
    }
    return options;
  }

  /** Returns the settings of every job; `interval` is the time between checkpoints. */
  static Configuration configuration(String parallelism, String interval) {
    Configuration configuration = new Configuration();
    configuration.setString("parallelism.default", parallelism);
    configuration.setString("execution.checkpointing.interval", interval);
    configuration.setString("table.local-time-zone", "UTC");
    // A benchmark that restarts its job measures nothing: let it fail.
    configuration.setString("restart-strategy.type", "none");
    return configuration;
  }

  /** Makes the catalog `lake` and the function `micros` known. */
  static void register(TableEnvironment tables, Map<String, String> options) {
    tables.executeSql(
        String.format(
            "CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-impl' = '%s', 'uri' = '%s', "
                + "'warehouse' = '%s', 'jdbc.schema-version' = 'V1')",
            CATALOG_CLASS, options.get("uri"), options.get("warehouse")));
    tables.createTemporarySystemFunction("micros", Micros.class);
  }

  /** Makes a topic known as the table `source_TABLE`; `reading` has further settings of its connector. */
  static void source(
      TableEnvironment tables, Map<String, String> options, String topic, String table, String reading) {
    tables.executeSql(
        String.format(
            "CREATE TEMPORARY TABLE source_%s (" + COLUMNS + ") WITH ('connector' = 'kafka', 'topic' = '%s', "
                + "'properties.bootstrap.servers' = '%s', 'properties.group.id' = 'flink-benchmark', "
                + "'format' = 'debezium-json', 'debezium-json.schema-include' = '%s', %s)",
            table, "BIGINT", topic, options.get("bootstrap"), options.get("schemas"), reading));
  }

  /** Creates a table of the lake. */
  static void target(TableEnvironment tables, String namespace, String table, boolean upsert) {
    tables.executeSql(
        String.format(
            "CREATE TABLE lake.%s.%s (" + COLUMNS + ") WITH ('format-version' = '2', 'write.upsert.enabled' = '%s')",
            namespace, table, "TIMESTAMP(6)", upsert));
  }

  /** Returns the statement that copies a source into its table. */
  static String insert(String namespace, String table) {
    return String.format(
        "INSERT INTO lake.%s.%s SELECT id, quantity, amount, status, note, micros(updated_at) FROM source_%s",
        namespace, table, table);
  }
}
