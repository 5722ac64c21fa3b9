import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.SnapshotDiffReport;
import org.apache.hadoop.hdfs.protocol.SnapshotStatus;
import org.apache.hadoop.hdfs.protocol.SnapshottableDirectoryStatus;
import org.apache.hadoop.hdfs.web.WebHdfsFileSystem;
import org.apache.hadoop.ipc.RemoteException;

/** Prints what Hadoop's client makes of the snapshots of /snap, by hdfs:// or webhdfs://. */
public class Snapshots {
  static final Path DIR = new Path("/snap");

  public static void main(String[] args) throws Exception {
    FileSystem fs = FileSystem.get(new URI(args[0]), new Configuration());
    allow(fs, true);
    for (String name : new String[] {"f", "gone", "moved", "sub/g"}) {
      fs.create(new Path(DIR, name)).close();
    }
    System.out.println(path(fs.createSnapshot(DIR, "s")));
    fs.delete(new Path(DIR, "gone"), false);
    fs.rename(new Path(DIR, "moved"), new Path(DIR, "sub/there"));
    fs.mkdirs(new Path(DIR, "new/er"));
    fs.createSnapshot(DIR, "t");
    fs.renameSnapshot(DIR, "t", "u");
    System.out.println(fs.exists(new Path(DIR, ".snapshot/s/gone")) + " " + fs.exists(new Path(DIR, ".snapshot/u/gone")));
    for (SnapshottableDirectoryStatus d : dirs(fs)) {
      System.out.println(d.getFullPath() + " " + d.getSnapshotNumber() + " of " + d.getSnapshotQuota());
    }
    for (SnapshotStatus s : list(fs)) {
      System.out.println(path(s.getFullPath()) + " " + s.isDeleted() + " " + (s.getSnapshotID() > 0));
    }
    for (String[] pair : new String[][] {{"s", "u"}, {"s", ""}, {"u", "s"}, {"u", "u"}}) {
      System.out.println(pair[0] + " to " + pair[1]);
      for (SnapshotDiffReport.DiffReportEntry e : diff(fs, pair[0], pair[1]).getDiffList()) {
        System.out.println(e);
      }
    }
    attempt("again", () -> fs.createSnapshot(DIR, "s"));
    attempt("not allowed", () -> fs.createSnapshot(new Path("/"), "s"));
    attempt("no such", () -> fs.deleteSnapshot(DIR, "x"));
    attempt("in a snapshot", () -> fs.mkdirs(new Path(DIR, ".snapshot/s/new")));
    attempt("has some", () -> fs.delete(DIR, true));
    fs.deleteSnapshot(DIR, "s");
    fs.deleteSnapshot(DIR, "u");
    allow(fs, false);
    System.out.println(fs.delete(DIR, true));
  }

  static String path(Path p) {
    return p.toUri().getPath();
  }

  interface Action {
    void run() throws Exception;
  }

  static void attempt(String what, Action action) {
    try {
      action.run();
      System.out.println(what + ": done");
    } catch (RemoteException e) { // of a class that only servers have
      System.out.println(what + ": " + e.getClassName());
    } catch (Exception e) {
      System.out.println(what + ": " + e.getClass().getSimpleName());
    }
  }

  static void allow(FileSystem fs, boolean yes) throws Exception {
    fs.mkdirs(DIR);
    if (fs instanceof DistributedFileSystem d) {
      if (yes) {
        d.allowSnapshot(DIR);
      } else {
        d.disallowSnapshot(DIR);
      }
    } else if (yes) {
      ((WebHdfsFileSystem) fs).allowSnapshot(DIR);
    } else {
      ((WebHdfsFileSystem) fs).disallowSnapshot(DIR);
    }
  }

  static SnapshottableDirectoryStatus[] dirs(FileSystem fs) throws Exception {
    return fs instanceof DistributedFileSystem d ? d.getSnapshottableDirListing() : ((WebHdfsFileSystem) fs).getSnapshottableDirectoryList();
  }

  static SnapshotStatus[] list(FileSystem fs) throws Exception {
    return fs instanceof DistributedFileSystem d ? d.getSnapshotListing(DIR) : ((WebHdfsFileSystem) fs).getSnapshotListing(DIR);
  }

  static SnapshotDiffReport diff(FileSystem fs, String from, String to) throws Exception {
    return fs instanceof DistributedFileSystem d ? d.getSnapshotDiffReport(DIR, from, to) : ((WebHdfsFileSystem) fs).getSnapshotDiffReport(DIR, from, to);
  }
}
