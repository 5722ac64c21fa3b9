import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream.SyncFlag;
import org.apache.hadoop.ipc.RemoteException;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TestName;

/** Clients of hdfs:// that write the same files. Each has a name of its own, as programs on several machines have. */
public class Writers {
  private static final int BLOCK = 1 << 20;
  private static final String IN_USE = "AlreadyBeingCreatedException";
  private static final String RECOVERING = "RecoveryInProgressException";
  private static final String EXISTS = "FileAlreadyExistsException";
  private static final Set<String> GONE = Set.of("FileNotFoundException", "LeaseExpiredException");

  @Rule public final TestName name = new TestName();

  private final List<DistributedFileSystem> clients = new ArrayList<>();
  private DistributedFileSystem ann;
  private DistributedFileSystem bob;
  private Path file;

  @Before public void connect() throws IOException {
    ann = client();
    bob = client();
    file = new Path("/writers/" + name.getMethodName() + "/file");
  }

  @After public void disconnect() throws IOException {
    for (DistributedFileSystem c : clients) {
      c.close();
    }
  }

  private synchronized DistributedFileSystem client() throws IOException {
    DistributedFileSystem c = (DistributedFileSystem) FileSystem.newInstance(Suites.settings());
    clients.add(c);
    return c;
  }

  private interface Action {
    void run() throws Exception;
  }

  /** The class of the error that it ends with, as the server names it; "done" without one. */
  private static String end(Action action) throws Exception {
    try {
      action.run();
      return "done";
    } catch (RemoteException e) {
      return e.getClassName().replaceFirst(".*[.$]", "");
    } catch (IOException e) {
      return e.getClass().getSimpleName();
    }
  }

  private static byte[] random(int n, long seed) {
    byte[] b = new byte[n];
    new Random(seed).nextBytes(b);
    return b;
  }

  private static byte[] concat(byte[]... parts) {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    for (byte[] part : parts) {
      all.writeBytes(part);
    }
    return all.toByteArray();
  }

  private static FSDataOutputStream create(FileSystem fs, Path path) throws IOException {
    return fs.create(path, false, 4096, (short) 1, BLOCK);
  }

  /** The file is open, and has these bytes. */
  private static FSDataOutputStream flushed(FileSystem fs, Path path, byte[] bytes) throws IOException {
    FSDataOutputStream out = create(fs, path);
    out.write(bytes);
    out.hflush();
    return out;
  }

  private static void append(FileSystem fs, Path path, byte[] bytes) throws IOException {
    try (FSDataOutputStream out = fs.append(path)) {
      out.write(bytes);
    }
  }

  /** Whoever opens it sees these bytes, and their end. */
  private void has(Path path, byte[] want) throws IOException {
    try (FSDataInputStream in = client().open(path)) {
      assertEquals(want.length, ((HdfsDataInputStream) in).getVisibleLength());
      assertArrayEquals(want, in.readAllBytes());
    }
  }

  private void recover(DistributedFileSystem fs, Path path) throws IOException {
    while (!fs.recoverLease(path)) {
      Thread.onSpinWait(); // HDFS recovers in the background
    }
  }

  private void truncate(DistributedFileSystem fs, Path path, long length) throws IOException {
    if (!fs.truncate(path, length)) {
      while (!fs.isFileClosed(path)) {
        Thread.onSpinWait(); // HDFS cuts a block in the background
      }
    }
  }

  /** The ends of the same action of many clients at once. */
  private List<String> race(int n, Action... actions) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(n);
    List<Callable<String>> all = new ArrayList<>();
    for (Action action : actions) {
      all.add(() -> end(action));
    }
    List<String> ends = new ArrayList<>();
    for (Future<String> f : threads.invokeAll(all)) {
      ends.add(f.get());
    }
    threads.shutdown();
    return ends;
  }

  @Test public void openFileIsItsWriters() throws Exception {
    FSDataOutputStream out = flushed(ann, file, random(1000, 1));
    assertEquals(IN_USE, end(() -> bob.append(file)));
    assertEquals(IN_USE, end(() -> ann.append(file)));
    assertEquals(IN_USE, end(() -> bob.truncate(file, 10)));
    assertTrue(Set.of(IN_USE, EXISTS).contains(end(() -> create(bob, file))));
    assertFalse(bob.isFileClosed(file));
    out.close();
    assertTrue(bob.isFileClosed(file));
    assertEquals(EXISTS, end(() -> create(bob, file)));
    append(bob, file, random(10, 2));
    has(file, concat(random(1000, 1), random(10, 2)));
  }

  @Test public void overwriteReplacesTheWriter() throws Exception {
    FSDataOutputStream out = flushed(ann, file, random(1000, 1));
    try (FSDataOutputStream other = bob.create(file, true)) {
      other.write(random(20, 2));
    }
    String end = end(out::close);
    assertTrue(end, GONE.contains(end));
    has(file, random(20, 2));
  }

  @Test public void deleteEndsTheWriter() throws Exception {
    FSDataOutputStream out = flushed(ann, file, random(1000, 1));
    assertTrue(bob.delete(file, false));
    String end = end(out::close);
    assertTrue(end, GONE.contains(end));
    assertFalse(bob.exists(file));
  }

  @Test public void recoverLeaseReplacesTheWriter() throws Exception {
    FSDataOutputStream out = flushed(ann, file, random(100_000, 1));
    out.write(random(100, 3)); // stays with the client
    recover(bob, file);
    has(file, random(100_000, 1));
    append(bob, file, random(5000, 2));
    assertNotEquals("done", end(() -> {
      out.write(random(100_000, 4));
      out.hflush();
    }));
    assertNotEquals("done", end(out::close));
    has(file, concat(random(100_000, 1), random(5000, 2)));
    assertTrue(bob.recoverLease(file)); // of a file that nobody writes
    Path none = new Path(file.getParent(), "none");
    assertEquals("FileNotFoundException", end(() -> bob.recoverLease(none)));
    assertEquals("FileNotFoundException", end(() -> bob.isFileClosed(none)));
  }

  @Test public void recoverLeaseOfAnEmptyFile() throws Exception {
    FSDataOutputStream out = create(ann, file);
    recover(bob, file);
    has(file, new byte[0]);
    end(out::close);
    has(file, new byte[0]);
  }

  /** Flushes end within, at and behind the ends of checksums' chunks, packets and blocks. */
  @Test public void flushesAreSeen() throws Exception {
    byte[] all = {};
    try (FSDataOutputStream out = create(ann, file)) {
      for (int n : new int[] {1, 511, 1, 510, 2, 64_000, BLOCK - 65_025, 1, BLOCK - 2, 1, BLOCK, 100}) {
        byte[] more = random(n, n);
        out.write(more);
        all = concat(all, more);
        if (n % 2 == 0) {
          out.hflush();
        } else {
          ((HdfsDataOutputStream) out).hsync(EnumSet.of(SyncFlag.UPDATE_LENGTH));
          assertEquals(all.length, bob.getFileStatus(file).getLen());
        }
        has(file, all);
      }
    }
    has(file, all);
    BlockLocation[] blocks = bob.getFileBlockLocations(file, 0, all.length); // three are full
    assertEquals(4, blocks.length);
    for (int i = 0; i < blocks.length; i++) {
      assertEquals(i * BLOCK, blocks[i].getOffset());
      assertEquals(Math.min(BLOCK, all.length - i * BLOCK), blocks[i].getLength());
      assertEquals(1, blocks[i].getHosts().length);
    }
  }

  @Test public void appendsInTurn() throws Exception {
    create(ann, file).close();
    byte[] all = {};
    for (int n : new int[] {1, 100, 411, 512, 700, 65_536, BLOCK, 13}) {
      FileSystem who = n % 2 == 0 ? ann : bob;
      try (FSDataOutputStream out = who.append(file)) {
        assertEquals(all.length, out.getPos());
        out.write(random(n, n));
      }
      all = concat(all, random(n, n));
      has(file, all);
    }
    try (FSDataOutputStream out = ann.append(file, EnumSet.of(CreateFlag.APPEND, CreateFlag.NEW_BLOCK), 4096, null)) {
      out.write(random(30, 30));
    }
    has(file, concat(all, random(30, 30)));
  }

  @Test public void renamedDirectoryKeepsItsWriter() throws Exception {
    Path to = new Path("/writers/renamed");
    FSDataOutputStream out = flushed(ann, file, random(1000, 1));
    assertTrue(bob.rename(file.getParent(), to));
    out.write(random(2 * BLOCK, 2)); // in new blocks
    out.hflush();
    has(new Path(to, "file"), concat(random(1000, 1), random(2 * BLOCK, 2)));
    out.close();
    has(new Path(to, "file"), concat(random(1000, 1), random(2 * BLOCK, 2)));
    assertFalse(bob.exists(file));
  }

  @Test public void truncateAndAppend() throws Exception {
    byte[] all = random(2 * BLOCK + 700, 1);
    try (FSDataOutputStream out = create(ann, file)) {
      out.write(all);
    }
    assertNotEquals("done", end(() -> bob.truncate(file, all.length + 1)));
    for (int n : new int[] {2 * BLOCK + 600, BLOCK + 100, BLOCK, 1, 0}) {
      truncate(bob, file, n);
      has(file, Arrays.copyOf(all, n));
    }
    append(ann, file, all);
    has(file, all);
  }

  @Test public void closedClientClosesItsFiles() throws Exception {
    create(ann, file).write(random(5000, 1));
    ann.close();
    assertTrue(bob.isFileClosed(file));
    has(file, random(5000, 1));
  }

  @Test public void oneOfManyCreates() throws Exception {
    Action[] all = new Action[12];
    for (int i = 0; i < all.length; i++) {
      DistributedFileSystem fs = client();
      byte[] bytes = random(3000, i);
      all[i] = () -> {
        try (FSDataOutputStream out = create(fs, file)) {
          out.write(bytes);
        }
      };
    }
    List<String> ends = race(all.length, all);
    assertEquals(ends.toString(), 1, Collections.frequency(ends, "done"));
    assertTrue(ends.toString(), Set.of("done", IN_USE, EXISTS).containsAll(ends));
    has(file, random(3000, ends.indexOf("done")));
  }

  @Test public void manyAppendInTurn() throws Exception {
    create(ann, file).close();
    Action[] all = new Action[12];
    Set<String> want = new TreeSet<>();
    for (int i = 0; i < all.length; i++) {
      DistributedFileSystem fs = client();
      String line = i + " " + "x".repeat(997 - (i + " ").length()) + "\n";
      want.add(line.strip());
      all[i] = () -> {
        String end = end(() -> append(fs, file, line.getBytes()));
        while (Set.of(IN_USE, RECOVERING).contains(end)) {
          Thread.yield();
          end = end(() -> append(fs, file, line.getBytes()));
        }
        if (!end.equals("done")) {
          throw new IOException(end);
        }
      };
    }
    List<String> ends = race(all.length, all);
    assertEquals(ends.toString(), all.length, Collections.frequency(ends, "done"));
    try (FSDataInputStream in = bob.open(file)) {
      String[] lines = new String(in.readAllBytes()).split("\n");
      assertEquals(all.length, lines.length);
      assertEquals(want, new TreeSet<>(List.of(lines)));
    }
  }
}
