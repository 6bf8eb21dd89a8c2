// The search runs in a Worker. A page that is opened from a folder may start none, so there it runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = () => {}; // of languages other than English
      const script = this.inside.document.createElement("script");
      this.ready = new Promise((loaded) => (script.onload = loaded));
      script.src = url;
      this.inside.document.head.append(script);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
