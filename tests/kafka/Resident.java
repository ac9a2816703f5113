import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.Exit;

/** Runs programs of the jars one after the other in one JVM, each from its own main, as `resident.py` asks.
 *
 * <p>Asked are the class, its arguments, and what stands on its standard input, each with its length before it; the answer is the exit status and
 * what was printed on both streams. A program ends where it asks Kafka's Exit for that, or with its main: then what it left for the end of the
 * JVM is run, it is unwound and prints no more. One that ends the JVM itself does so; the answer then has WITH_THE_JVM for a status.
 */
public class Resident {
    /** Where a program prints: what it or a library keeps of System.out stays right for the next one. */
    static final class Printed extends OutputStream {
        private ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private boolean isOpen;

        @Override
        public synchronized void write(int value) {
            if (isOpen) bytes.write(value);
        }

        @Override
        public synchronized void write(byte[] from, int start, int length) {
            if (isOpen) bytes.write(from, start, length);
        }

        synchronized void open() {
            bytes = new ByteArrayOutputStream();
            isOpen = true;
        }

        synchronized byte[] shut() {
            isOpen = false;
            return bytes.toByteArray();
        }
    }

    /** Takes a program out of wherever it is when it asks to end. */
    static final class Ended extends Error {
        Ended() {
            super("the program has ended", null, false, false);
        }
    }

    private static final int WITH_THE_JVM = Integer.MIN_VALUE;
    private static final Printed out = new Printed();
    private static final Printed err = new Printed();
    private static final Deque<Runnable> atEnd = new ConcurrentLinkedDeque<>();
    private static final AtomicReference<Integer> status = new AtomicReference<>(0);

    /** The first to ask decides; as in a JVM that exits, what is to be done at its end still prints. */
    private static void end(int asked) {
        if (status.compareAndSet(null, asked)) {
            for (Runnable hook = atEnd.poll(); hook != null; hook = atEnd.poll()) {
                hook.run();
            }
            out.shut();
            err.shut();
        }
    }

    private static void program(String name, String[] arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            end(0);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                System.err.print("Exception in thread \"main\" ");
                thrown.getCause().printStackTrace();
                end(1);
            }
        } catch (ReflectiveOperationException problem) {
            problem.printStackTrace();
            end(1);
        }
    }

    private static void answer(DataOutputStream to, int status) throws IOException {
        to.writeInt(status);
        for (byte[] printed : new byte[][] {out.shut(), err.shut()}) {
            to.writeInt(printed.length);
            to.write(printed);
        }
        to.flush();
    }

    private static byte[] field(DataInputStream from) throws IOException {
        byte[] bytes = new byte[from.readInt()];
        from.readFully(bytes);
        return bytes;
    }

    public static void main(String[] none) throws Exception {
        DataInputStream asked = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        Exit.Procedure leave = (asksFor, message) -> {
            end(asksFor);
            throw new Ended();
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        Exit.setShutdownHookAdder((name, hook) -> atEnd.add(hook));
        Thread last = new Thread(() -> {
            try {
                if (status.get() == null) answer(answers, WITH_THE_JVM);
            } catch (IOException nobodyIsThere) {
                // then it is the end as well
            }
        });
        Runtime.getRuntime().addShutdownHook(last);
        while (true) {
            int count;
            try {
                count = asked.readInt();
            } catch (EOFException nobodyIsThere) {
                System.exit(0);
                return;
            }
            String name = new String(field(asked), "UTF-8");
            String[] arguments = new String[count];
            for (int number = 0; number < count; number++) {
                arguments[number] = new String(field(asked), "UTF-8");
            }
            System.setIn(new ByteArrayInputStream(field(asked)));
            status.set(null);
            out.open();
            err.open();
            Thread main = new Thread(() -> program(name, arguments), "main");
            main.start();
            main.join();
            answer(answers, status.get());
        }
    }
}
