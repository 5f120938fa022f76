// Prints a change event as Kafka Connect's own JsonConverter writes it, with a field of each type that it has.
// recorded.json is its output with Connect 4.3.1. To record it again, with the jars connect-json, connect-api,
// kafka-clients, and Jackson's databind, datatype-jdk8 and module-blackbird in a folder JARS:
//   java -cp 'JARS/*' tests/connect/Message.java > tests/connect/recorded.json

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;

public class Message {
    private static final SchemaBuilder ROW = SchemaBuilder.struct().name("shop.Value");
    private static final Schema POINT =
        SchemaBuilder.struct().optional().field("x", Schema.FLOAT64_SCHEMA).field("y", Schema.FLOAT32_SCHEMA).build();
    private static final Schema FLOATS = SchemaBuilder.array(Schema.OPTIONAL_FLOAT32_SCHEMA).optional().build();
    private static final Schema PRICE =
        Decimal.builder(2).optional().parameter("connect.decimal.precision", "10").build();

    private static Object[][] fields() {
        return new Object[][] {
            {"id", Schema.INT64_SCHEMA, 1L},
            {"int8", Schema.OPTIONAL_INT8_SCHEMA, (byte) -7},
            {"int16", Schema.OPTIONAL_INT16_SCHEMA, (short) 700},
            {"int32", Schema.OPTIONAL_INT32_SCHEMA, 70_000},
            {"float32", Schema.OPTIONAL_FLOAT32_SCHEMA, 0.1f},
            {"float64", Schema.OPTIONAL_FLOAT64_SCHEMA, 0.1},
            {"nan", Schema.OPTIONAL_FLOAT64_SCHEMA, Double.NaN},
            {"infinite", Schema.OPTIONAL_FLOAT32_SCHEMA, Float.NEGATIVE_INFINITY},
            {"boolean", Schema.OPTIONAL_BOOLEAN_SCHEMA, true},
            {"string", Schema.OPTIONAL_STRING_SCHEMA, "caf\u00e9"},
            {"bytes", Schema.OPTIONAL_BYTES_SCHEMA, new byte[] {1, -1}},
            {"decimal", PRICE, new BigDecimal("-12.34")},
            {"date", Date.builder().optional().build(), new java.util.Date(86_400_000L * 365)},
            {"time", Time.builder().optional().build(), new java.util.Date(3_600_001L)},
            {"timestamp", Timestamp.builder().optional().build(), new java.util.Date(1_700_000_000_123L)},
            {"floats", FLOATS, Arrays.asList(0.5f, null)},
            {"point", POINT, new Struct(POINT).put("x", 1.5).put("y", -2.5f)},
            {"missing", Schema.OPTIONAL_FLOAT64_SCHEMA, null},
        };
    }

    public static void main(String[] arguments) {
        for (Object[] field : fields()) {
            ROW.field((String) field[0], (Schema) field[1]);
        }
        Schema row = ROW.optional().build();
        Struct after = new Struct(row);
        for (Object[] field : fields()) {
            after.put((String) field[0], field[2]);
        }
        Schema envelope = SchemaBuilder.struct()
            .name("shop.Envelope")
            .field("before", row)
            .field("after", row)
            .field("op", Schema.STRING_SCHEMA)
            .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA)
            .build();
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("converter.type", "value"));
        Struct event = new Struct(envelope).put("after", after).put("op", "c").put("ts_ms", 1L);
        System.out.println(new String(converter.fromConnectData("t", envelope, event), StandardCharsets.UTF_8));
    }
}
