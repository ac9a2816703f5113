/*
 * Runs the statements of a file (its first argument; a semicolon ends a line and a statement) in one JVM with a
 * Flink cluster of its own, which checkpoints into the directory that is the second argument. `java` compiles
 * it as it starts it. It tells `row ROW` for each row of a SELECT, `done` when a statement has ended, and
 * `failed CLASS: message` for the exception that ended a job, its causes behind it.
 */
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

public class Statements {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", System.getProperty("attempts", "1000"));
        settings.setString("restart-strategy.fixed-delay.delay", "500 ms");
        settings.setString("execution.checkpointing.interval", "500 ms");
        settings.setString("execution.checkpointing.dir", Path.of(arguments[1]).toUri().toString());
        settings.setString("parallelism.default", "2");
        settings.setString("rest.port", "0");
        settings.setString("rest.bind-address", "127.0.0.1");
        StreamTableEnvironment tables =
                StreamTableEnvironment.create(StreamExecutionEnvironment.getExecutionEnvironment(settings));
        try {
            for (String statement : Files.readString(Path.of(arguments[0])).split(";\\s*\n")) {
                if (!statement.isBlank()) {
                    run(tables.executeSql(statement), statement.strip());
                }
            }
        } catch (Exception failure) {
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                System.out.println("failed " + cause.getClass().getName() + ": " + cause.getMessage());
            }
            System.exit(1);
        }
        System.exit(0);
    }

    private static void run(TableResult result, String statement) throws Exception {
        if (statement.startsWith("SELECT")) {
            try (CloseableIterator<Row> rows = result.collect()) {
                while (rows.hasNext()) {
                    System.out.println("row " + rows.next());
                }
            }
        } else if (statement.startsWith("INSERT")) {
            result.await();
        }
        System.out.println("done");
    }
}
