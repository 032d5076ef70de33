import java.lang.management.ManagementFactory;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;

/**
 * Drains Debezium topics into Iceberg tables with Flink SQL, several times in one JVM: the first run is cold, the
 * later ones are warm. Prints one JSON line a run with its wall and CPU seconds.
 *
 * <p>Arguments: name=value, namely bootstrap, topics (topic=table pairs joined by ';'), uri, warehouse, mode (upsert or
 * changelog), schemas (true where events carry them), runs, parallelism. Run n writes the namespace flink_MODE_n.
 */
public final class Drain {
  /** Debezium's DATETIME(6), microseconds as if in UTC, as a timestamp without zone. */
  public static final class Micros extends ScalarFunction {
    public @DataTypeHint("TIMESTAMP(6)") LocalDateTime eval(long micros) {
      return LocalDateTime.ofEpochSecond(
          Math.floorDiv(micros, 1_000_000L), (int) Math.floorMod(micros, 1_000_000L) * 1000, ZoneOffset.UTC);
    }
  }

  private static final String COLUMNS =
      "id BIGINT NOT NULL, quantity INT NOT NULL, amount DECIMAL(12, 2) NOT NULL, status STRING NOT NULL, "
          + "note STRING NOT NULL, updated_at %s NOT NULL, PRIMARY KEY (id) NOT ENFORCED";

  public static void main(String[] arguments) throws Exception {
    Map<String, String> options = new TreeMap<>();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      options.put(pair[0], pair[1]);
    }
    for (int run = 1; run <= Integer.parseInt(options.get("runs")); run++) {
      long wall = System.nanoTime();
      long cpu = cpuNanos();
      drain(options, "flink_" + options.get("mode") + "_" + run);
      double wallSeconds = (System.nanoTime() - wall) / 1e9;
      double cpuSeconds = (cpuNanos() - cpu) / 1e9;
      System.out.printf(
          Locale.ROOT, "{\"run\": %d, \"seconds\": %.3f, \"cpu_seconds\": %.3f}%n", run, wallSeconds, cpuSeconds);
    }
    System.exit(0);
  }

  private static void drain(Map<String, String> options, String namespace) throws Exception {
    TableEnvironment tables = environment(options);
    tables.executeSql("CREATE DATABASE IF NOT EXISTS lake." + namespace);
    tables.createTemporarySystemFunction("micros", Micros.class);
    StatementSet inserts = tables.createStatementSet();
    for (String pair : options.get("topics").split(";")) {
      String topic = pair.split("=")[0];
      String table = pair.split("=")[1];
      tables.executeSql(source(options, topic, table));
      tables.executeSql(target(options, namespace, table));
      inserts.addInsertSql(
          String.format(
              "INSERT INTO lake.%s.%s SELECT id, quantity, amount, status, note, micros(updated_at) FROM source_%s",
              namespace, table, table));
    }
    inserts.execute().await();
  }

  private static TableEnvironment environment(Map<String, String> options) {
    Configuration configuration = new Configuration();
    configuration.setString("parallelism.default", options.get("parallelism"));
    configuration.setString("execution.checkpointing.interval", "10 s");
    configuration.setString("table.local-time-zone", "UTC");
    // A benchmark that restarts its job measures nothing: let it fail.
    configuration.setString("restart-strategy.type", "none");
    if (options.containsKey("network-memory")) {
      configuration.setString("taskmanager.memory.network.min", options.get("network-memory"));
      configuration.setString("taskmanager.memory.network.max", options.get("network-memory"));
    }
    TableEnvironment tables =
        TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
    tables.executeSql(
        String.format(
            "CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-impl' = 'org.apache.iceberg.jdbc.JdbcCatalog', "
                + "'uri' = '%s', 'warehouse' = '%s', 'jdbc.schema-version' = 'V1')",
            options.get("uri"), options.get("warehouse")));
    return tables;
  }

  private static String source(Map<String, String> options, String topic, String table) {
    return String.format(
        "CREATE TEMPORARY TABLE source_%s (" + COLUMNS + ") WITH ('connector' = 'kafka', 'topic' = '%s', "
            + "'properties.bootstrap.servers' = '%s', 'properties.group.id' = 'flink-benchmark', "
            + "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', "
            + "'format' = 'debezium-json', 'debezium-json.schema-include' = '%s')",
        table, "BIGINT", topic, options.get("bootstrap"), options.get("schemas"));
  }

  private static String target(Map<String, String> options, String namespace, String table) {
    return String.format(
        "CREATE TABLE lake.%s.%s (" + COLUMNS + ") WITH ('format-version' = '2', 'write.upsert.enabled' = '%s')",
        namespace, table, "TIMESTAMP(6)", options.get("mode").equals("upsert"));
  }

  private static long cpuNanos() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }
}
