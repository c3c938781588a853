import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Which of so many partitions Kafka's Java client sends each key to; a key is a line of hexadecimal digits. */
public class Partitions {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        StringBuilder partitions = new StringBuilder();
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                partitions.append(BuiltInPartitioner.partitionForKey(HexFormat.of().parseHex(line), count)).append('\n');
            }
        }
        System.out.print(partitions);
    }
}
