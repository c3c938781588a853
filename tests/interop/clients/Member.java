import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.HashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a consumer group on Kafka's Java client; see journal.py for its arguments and for what it writes. */
public class Member implements ConsumerRebalanceListener {
    private final FileOutputStream journal;
    private final String member;

    private Member(String path, String member) throws IOException {
        this.journal = new FileOutputStream(path, true);
        this.member = member;
    }

    private void write(String event, String numbers) {
        String line = System.currentTimeMillis() + " " + member + " " + event + " " + numbers + "\n";
        try {
            journal.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void write(String event, Collection<TopicPartition> partitions) {
        write(event, partitions.stream().map(each -> "" + each.partition()).collect(Collectors.joining(" ")));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        write("gain", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        write("lose", partitions);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        for (String setting : List.of(arguments).subList(5, arguments.length)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        Member self = new Member(arguments[3], arguments[4]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException error) {
                main.interrupt();
            }
        }));
        try (consumer) {
            consumer.subscribe(List.of(arguments[2]), self);
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    self.write("saw", record.partition() + " " + record.offset());
                }
                if (!records.isEmpty()) {
                    self.commit(consumer);
                }
            }
        } catch (WakeupException stopped) {
            // SIGTERM: the consumer leaves its group as the block closes it.
        }
    }

    private void commit(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            consumer.commitSync();
        } catch (WakeupException stopped) {
            throw stopped;
        } catch (KafkaException error) {
            System.err.println(error); // its partitions may have moved on; their new owner reads again
        }
    }
}
