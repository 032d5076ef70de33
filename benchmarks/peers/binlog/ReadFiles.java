import com.github.shyiko.mysql.binlog.BinaryLogFileReader;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.Event;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer;
import java.io.File;

/** Reads binary log files with the binlog client of Debezium, and counts their rows: the floor of any import. */
public final class ReadFiles {
    public static void main(String[] files) throws Exception {
        for (int run = 0; run < 3; run++) {
            long started = System.nanoTime();
            long rows = 0;
            for (String file : files) {
                rows += rows(new File(file));
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            System.out.println("{\"rows\": " + rows + ", \"seconds\": " + seconds + "}");
        }
    }

    private static long rows(File file) throws Exception {
        long rows = 0;
        try (BinaryLogFileReader reader = new BinaryLogFileReader(file, new EventDeserializer())) {
            for (Event event; (event = reader.readEvent()) != null;) {
                Object data = event.getData();
                if (data instanceof WriteRowsEventData) {
                    rows += ((WriteRowsEventData) data).getRows().size();
                } else if (data instanceof UpdateRowsEventData) {
                    rows += ((UpdateRowsEventData) data).getRows().size();
                } else if (data instanceof DeleteRowsEventData) {
                    rows += ((DeleteRowsEventData) data).getRows().size();
                }
            }
        }
        return rows;
    }
}
