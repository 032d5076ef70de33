import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.iceberg.flink.maintenance.api.TriggerLockFactory;

/**
 * Lets one maintenance task run at a time in this JVM, and prints one JSON line with the seconds that it took.
 *
 * <p>Flink takes the lock before it triggers a task and releases it after the task's result, so its life is the time of
 * the task. JdbcLockFactory does the same with a table of a database, for several processes.
 */
final class TimedLock implements TriggerLockFactory {
  private static final long serialVersionUID = 1L;
  private static final long FREE = 0;
  private static final AtomicLong TASK = new AtomicLong(FREE);
  private static final AtomicLong RECOVERY = new AtomicLong(FREE);

  @Override
  public void open() {}

  @Override
  public Lock createLock() {
    return new Held(TASK);
  }

  @Override
  public Lock createRecoveryLock() {
    return new Held(RECOVERY);
  }

  @Override
  public void close() {}

  /** One of the two locks; its value is when it was taken, in nanoseconds. */
  private record Held(AtomicLong since) implements Lock {
    @Override
    public boolean tryLock() {
      return since.compareAndSet(FREE, System.nanoTime());
    }

    @Override
    public boolean isHeld() {
      return since.get() != FREE;
    }

    @Override
    public void unlock() {
      long taken = since.getAndSet(FREE);
      // Flink releases both locks when it starts, whether they are held or not.
      if (taken != FREE) {
        double seconds = (System.nanoTime() - taken) / 1e9;
        System.out.println(String.format(Locale.ROOT, "{\"event\": \"maintained\", \"seconds\": %.3f}", seconds));
      }
    }
  }
}
