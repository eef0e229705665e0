// Browsers start no worker in a page that is opened as a file. There, run the theme's search in a
// hidden frame instead, which the theme recognizes by the name IFrameWorker.
window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super();
    this.waiting = [];
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.postMessage = (data) => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    };
    const script = this.inside.document.createElement("script");
    script.onload = () => {
      this.loaded = true;
      this.waiting.splice(0).forEach((data) => this.postMessage(data));
    };
    script.src = url;
    this.inside.document.body.append(script);
  }

  postMessage(data) {
    if (!this.loaded) this.waiting.push(data);
    else this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
  }

  terminate() {
    this.inside.frameElement?.remove();
  }
};
if (location.protocol === "file:") window.Worker = window.IFrameWorker;
