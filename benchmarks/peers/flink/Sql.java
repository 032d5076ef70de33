import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Runs a file of Flink SQL until it is stopped: the INSERTs are one job, whose plan is printed. It knows the catalog
 * `lake` and the function `micros`.
 *
 * <p>Arguments: name=value, namely statements (the file; a semicolon at the end of a line ends one), uri, warehouse,
 * interval (between checkpoints), parallelism, and conf.KEY for other settings of Flink.
 */
public final class Sql {
  private static final String SETTING = "conf.";

  public static void main(String[] arguments) throws Exception {
    Map<String, String> options = Lake.options(arguments);
    Configuration configuration = Lake.configuration(options.get("parallelism"), options.get("interval"));
    options.forEach(
        (name, value) -> {
          if (name.startsWith(SETTING)) {
            configuration.setString(name.substring(SETTING.length()), value);
          }
        });
    TableEnvironment tables =
        TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
    Lake.register(tables, options);
    StatementSet inserts = tables.createStatementSet();
    for (String statement : Files.readString(Path.of(options.get("statements"))).split(";\\s*\n")) {
      if (statement.startsWith("INSERT")) {
        inserts.addInsertSql(statement);
      } else if (!statement.isBlank()) {
        tables.executeSql(statement);
      }
    }
    System.out.println(inserts.explain());
    inserts.execute().await();
  }
}
