import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM, as kafka_tool.py asks for them.
 *
 * <p>A command is the number of its words, each word, and what it may read from its input; texts are bytes after their
 * length. The answer is what the tool prints, text by text, until it ends; then an empty text, and its exit code.
 */
public class ToolRunner {
    /** The end of a tool that asked for its exit. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    /** Tools begin with fresh classes of their own, for some count in static fields; the libraries stay warm. */
    private static final class Tools extends URLClassLoader {
        Tools(URL jar) {
            super(new URL[] {jar}, ToolRunner.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                if (loaded == null) {
                    try {
                        loaded = findClass(name);
                    } catch (ClassNotFoundException elsewhere) { // tools-api has some of that package's name
                        return super.loadClass(name, resolve);
                    }
                }
                return loaded;
            }
        }
    }

    private static final String ANY_TOOL = "org.apache.kafka.tools.TopicCommand";

    private final DataOutputStream answers;
    private boolean hasEnded;

    private ToolRunner(DataOutputStream answers) {
        this.answers = answers;
    }

    public static void main(String[] arguments) throws Exception {
        try {
            serve(new DataInputStream(new BufferedInputStream(System.in)),
                    new DataOutputStream(new BufferedOutputStream(System.out)));
        } catch (EOFException nobodyAsks) {
            Runtime.getRuntime().exit(0); // whatever threads the tools have left
        }
    }

    private static void serve(DataInputStream commands, DataOutputStream answers) throws Exception {
        URL jar = Class.forName(ANY_TOOL, false, ToolRunner.class.getClassLoader())
                .getProtectionDomain().getCodeSource().getLocation();
        while (true) {
            String[] command = new String[commands.readInt()];
            for (int i = 0; i < command.length; i++) {
                command[i] = new String(read(commands), StandardCharsets.UTF_8);
            }
            try (Tools tools = new Tools(jar)) {
                new ToolRunner(answers).run(tools, command, read(commands));
            }
        }
    }

    private static byte[] read(DataInputStream commands) throws IOException {
        return commands.readNBytes(commands.readInt());
    }

    private void run(Tools tools, String[] command, byte[] input) throws Exception {
        PrintStream out = new PrintStream(new BufferedOutputStream(new Printed(), 1 << 16), false, StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(out);
        System.setErr(out);
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> { });
        Thread.currentThread().setContextClassLoader(tools);
        Object arguments = Arrays.copyOfRange(command, 1, command.length);
        try {
            tools.loadClass(command[0]).getMethod("main", String[].class).invoke(null, arguments);
            end(0);
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace(out); // to nobody, if the tool has ended
            end(1);
        }
    }

    private void exit(int status) {
        end(status);
        throw new Ended();
    }

    private void end(int status) {
        System.out.flush();
        synchronized (this) {
            if (!hasEnded) {
                hasEnded = true;
                try {
                    answers.writeInt(0);
                    answers.writeInt(status);
                    answers.flush();
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
        }
    }

    /** What a tool prints after it asked for its exit (some catch whatever is thrown, and tell it) is not its answer. */
    private final class Printed extends OutputStream {
        @Override
        public void write(int single) throws IOException {
            write(new byte[] {(byte) single}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            synchronized (ToolRunner.this) {
                if (!hasEnded && length > 0) {
                    answers.writeInt(length);
                    answers.write(bytes, offset, length);
                }
            }
        }
    }
}
