// The search of the theme runs in a worker. A browser starts none for a page that is read from the disk
// (file://), so there a frame of the page takes its place. The theme looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        inside.document.body.append(script);
      });
      this.addEventListener("message", (event) => this.onmessage && this.onmessage(event));
      this.inside = inside;
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
