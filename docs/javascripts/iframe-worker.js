// Browsers start no workers for pages that are opened from a disk. There, the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (data) => this.later(() => this.onmessage?.({ data: structuredClone(data) }))
      this.ready = new Promise((resolve) => {
        const script = inside.document.createElement("script")
        script.src = new URL(address, location.href)
        script.onload = () => resolve(inside)
        script.onerror = () => this.onerror?.(new Event("error"))
        inside.document.head.append(script)
      })
    }

    postMessage(data) {
      const copy = structuredClone(data)
      this.ready.then((inside) => this.later(() => inside.onmessage?.({ data: copy })))
    }

    // a worker answers when its caller is done
    later(act) {
      setTimeout(act)
    }

    terminate() {
      this.frame.remove()
    }
  }
}
