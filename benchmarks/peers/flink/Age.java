import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamStatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.events.CreateSnapshotEvent;
import org.apache.iceberg.events.Listeners;
import org.apache.iceberg.flink.CatalogLoader;
import org.apache.iceberg.flink.TableLoader;
import org.apache.iceberg.flink.maintenance.api.ExpireSnapshots;
import org.apache.iceberg.flink.maintenance.api.RewriteDataFiles;
import org.apache.iceberg.flink.maintenance.api.TableMaintenance;

/**
 * Follows one Debezium topic into an existing Iceberg table, in upsert mode, with Iceberg's maintenance for Flink in the
 * same JVM, until it is stopped. Prints one JSON line for each snapshot and for each maintenance task.
 *
 * <p>Arguments: name=value, namely bootstrap, topic, offset (where to start), schemas, uri, warehouse, namespace, table,
 * interval (between checkpoints, in ms), maintenance (none, same-job, own-job), merge-files, target-file-size,
 * slice-bytes, max-snapshots.
 */
public final class Age {
  private static final Map<String, String> PROPERTIES =
      Map.of(
          "write.upsert.enabled", "true",
          // The sink commits while a rewrite commits: with the default, 4, some rewrites fail.
          "commit.retry.num-retries", "20",
          // As in a mirror of replicator: a file for each of 10,000 commits would fill the disk.
          "write.metadata.delete-after-commit.enabled", "true",
          "write.metadata.previous-versions-max", "50",
          // Every tenth checkpoint without a change would make a snapshot.
          "flink.max-continuous-empty-commits", String.valueOf(Integer.MAX_VALUE));

  public static void main(String[] arguments) throws Exception {
    Map<String, String> options = Lake.options(arguments);
    TableLoader table = tableLoader(options);
    setProperties(table);
    Listeners.register(Age::print, CreateSnapshotEvent.class);
    StreamExecutionEnvironment job = environment(options.get("interval") + " ms");
    attachSink(job, options);
    switch (options.get("maintenance")) {
      case "none" -> {}
      case "same-job" -> attachMaintenance(job, table, options);
      case "own-job" -> {
        StreamExecutionEnvironment own = environment("10 s");
        attachMaintenance(own, table, options);
        own.executeAsync("maintenance");
      }
      default -> throw new IllegalArgumentException("maintenance=" + options.get("maintenance"));
    }
    job.execute("age");
  }

  private static StreamExecutionEnvironment environment(String interval) {
    // One writer, so that each commit has one data file: commits are small.
    Configuration configuration = Lake.configuration("1", interval);
    // The sink commits after each checkpoint. Without the pause, the next checkpoint begins during the commit, just when
    // the next events arrive, and divides them.
    configuration.setString("execution.checkpointing.min-pause", interval);
    return StreamExecutionEnvironment.createLocalEnvironment(configuration);
  }

  private static void attachSink(StreamExecutionEnvironment job, Map<String, String> options) {
    StreamTableEnvironment tables = StreamTableEnvironment.create(job);
    Lake.register(tables, options);
    String table = options.get("table");
    String reading =
        String.format(
            "'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'partition:0,offset:%s'",
            options.get("offset"));
    Lake.source(tables, options, options.get("topic"), table, reading);
    StreamStatementSet inserts = tables.createStatementSet();
    inserts.addInsertSql(Lake.insert(options.get("namespace"), table));
    inserts.attachAsDataStream();
  }

  // In 1.11, the newer lock of Flink itself does not tell when a task runs.
  @SuppressWarnings("deprecation")
  private static void attachMaintenance(StreamExecutionEnvironment job, TableLoader table, Map<String, String> options)
      throws Exception {
    int mergeFiles = Integer.parseInt(options.get("merge-files"));
    int maxSnapshots = Integer.parseInt(options.get("max-snapshots"));
    TableMaintenance.forTable(job, table, new TimedLock())
        .uidSuffix("age")
        // The shortest time that is possible between two tasks.
        .rateLimit(Duration.ofSeconds(1))
        .lockCheckDelay(Duration.ofSeconds(1))
        .parallelism(1)
        .add(
            RewriteDataFiles.builder()
                .scheduleOnDataFileCount(mergeFiles)
                .scheduleOnEqDeleteFileCount(mergeFiles)
                .minInputFiles(mergeFiles)
                .deleteFileThreshold(1)
                .targetFileSizeBytes(Long.parseLong(options.get("target-file-size")))
                .maxFileGroupSizeBytes(Long.parseLong(options.get("slice-bytes"))))
        .add(
            ExpireSnapshots.builder()
                // Without an age, only their number counts.
                .scheduleOnCommitCount(Math.max(1, maxSnapshots / 10))
                .maxSnapshotAge(Duration.ZERO)
                .retainLast(maxSnapshots))
        .append();
  }

  private static TableLoader tableLoader(Map<String, String> options) {
    Map<String, String> properties =
        Map.of("uri", options.get("uri"), "warehouse", options.get("warehouse"), "jdbc.schema-version", "V1");
    CatalogLoader catalog =
        CatalogLoader.custom("lake", properties, new org.apache.hadoop.conf.Configuration(), Lake.CATALOG_CLASS);
    return TableLoader.fromCatalog(catalog, TableIdentifier.of(options.get("namespace"), options.get("table")));
  }

  private static void setProperties(TableLoader loader) throws Exception {
    try (TableLoader opened = loader.clone()) {
      opened.open();
      Table table = opened.loadTable();
      var update = table.updateProperties();
      PROPERTIES.forEach(update::set);
      update.commit();
    }
  }

  /** Prints a snapshot. In upsert mode each event deletes its key, so the deletes of a commit are its events. */
  private static void print(CreateSnapshotEvent event) {
    System.out.println(
        String.format(
            Locale.ROOT,
            "{\"event\": \"snapshot\", \"operation\": \"%s\", \"events\": %d, \"at\": %.3f}",
            event.operation(),
            count(event, "added-equality-deletes") + count(event, "added-position-deletes"),
            System.currentTimeMillis() / 1e3));
  }

  private static long count(CreateSnapshotEvent event, String name) {
    return Long.parseLong(event.summary().getOrDefault(name, "0"));
  }
}
