import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Drains Debezium topics into Iceberg tables with Flink SQL, several times in one JVM: the first run is cold, the
 * later ones are warm. Prints one JSON line a run with its wall and CPU seconds.
 *
 * <p>Arguments: name=value, namely bootstrap, topics (topic=table pairs joined by ';'), uri, warehouse, mode (upsert or
 * changelog), schemas (true where events carry them), runs, parallelism. Run n writes the namespace flink_MODE_n.
 */
public final class Drain {
  private static final String READING = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'";

  public static void main(String[] arguments) throws Exception {
    Map<String, String> options = Lake.options(arguments);
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
    StatementSet inserts = tables.createStatementSet();
    for (String pair : options.get("topics").split(";")) {
      String topic = pair.split("=")[0];
      String table = pair.split("=")[1];
      Lake.source(tables, options, topic, table, READING);
      Lake.target(tables, namespace, table, options.get("mode").equals("upsert"));
      inserts.addInsertSql(Lake.insert(namespace, table));
    }
    inserts.execute().await();
  }

  private static TableEnvironment environment(Map<String, String> options) {
    Configuration configuration = Lake.configuration(options.get("parallelism"), "10 s");
    if (options.containsKey("network-memory")) {
      configuration.setString("taskmanager.memory.network.min", options.get("network-memory"));
      configuration.setString("taskmanager.memory.network.max", options.get("network-memory"));
    }
    TableEnvironment tables =
        TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
    Lake.register(tables, options);
    return tables;
  }

  private static long cpuNanos() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }
}
