"""Rules, folding: a copy of the text in which full-width, upper-case and traditional characters match as one, same length."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

# Traditional characters that occur in rules and their common neighbours, each followed by its simplified form. Values are
# cut from the original text, so a person who writes traditional characters is remembered in traditional characters.
_TRADITIONAL: Final = (
    "記记過过對对氣气歲岁號号碼码電电話话機机郵邮箱箱職职業业習习慣惯愛爱歡欢討讨厭厌喜喜飲饮藥药養养隻只貓猫狗狗嗎吗麼么誰谁幾几"
    "說说講讲問问請请幫帮別别還还會会從从現现後后開开語语簡简單单詳详細细長长應应該该實实際际學学專专畢毕師师員员醫医護护設设計计"
    "經经理理總总監监產产運运營营銷销廣广東东灣湾臺台國国華华鄉乡縣县區区歷历歸归離离婚婚結结無无婦妇媽妈爺爷奶奶孫孙兒儿"
    "寶宝貝贝點点鐘钟週周錶表歐欧鐵铁車车飛飞買买賣卖錢钱貴贵價价報报告告給给讓让聽听讀读寫写畫画詩诗書书劇剧導导遊游戲戏樂乐"
    "彈弹鋼钢騎骑樣样種种類类個个們们這这裡里裏里邊边條条該该當当剛刚纔才緊紧壓压頭头腦脑髮发發发臉脸動动靜静傳传統统體体質质"
    "蘇苏蝦虾蟹蟹魚鱼雞鸡鴨鸭鵝鹅蛋蛋豬猪羊羊麵面餅饼飯饭湯汤鹹咸淨净濕湿熱热涼凉冷冷煙烟戒戒癮瘾"
    "進进遠远適适選选擇择認认識识訴诉談谈論论誤误調调變变換换壞坏與与並并兩两雙双聯联繫系絡络網网線线紅红綠绿藍蓝黃黄顏颜"
    "馬马鳥鸟龍龙趙赵劉刘陳陈楊杨吳吴許许鄭郑謝谢韓韩馮冯鄧邓葉叶呂吕盧卢鍾钟譚谭陸陆範范賈贾韋韦鄒邹龔龚錢钱嚴严莊庄"
    "為为於于屬属層层樓楼門门關关間间內内園园圖图場场億亿萬万歡欢覺觉觀观視视親亲戀恋聲声聰聪顧顾題题顯显夠够"
    "態态驗验檔档標标題题綱纲極极構构樹树橋桥檢检測测準准備备註注錄录鎖锁鏡镜險险陽阳陰阴隊队階阶隨随雖虽難难雲云霧雾"
    "嘗尝傷伤僅仅優优價价億亿倉仓偉伟傑杰億亿儘尽盡尽勞劳務务勝胜勵励歷历壓压參参啟启喚唤嘆叹團团圍围堅坚"
    "獎奖婦妇孃娘寧宁審审將将尋寻專专對对導导屆届嶺岭嶽岳幣币幹干幾几庫库廚厨廳厅彙汇徵征復复徹彻恆恒憶忆懷怀懶懒戰战"
    "執执掃扫掛挂採采撥拨擁拥擔担據据擾扰攝摄敗败敵敌數数斷断曉晓曆历會会東东柵栅榮荣樸朴歲岁殘残毀毁滅灭滿满漢汉潔洁澤泽"
    "濟济營营爐炉爭争牆墙狀状獨独獲获環环瑪玛疊叠療疗癒愈盤盘眾众睏困確确禮礼禱祷稅税穩稳窮穷競竞筆笔簽签籃篮糧粮糾纠約约級级"
    "純纯紙纸組组終终絕绝維维緒绪練练縮缩績绩織织繼继續续罰罚羅罗聖圣聞闻職职肅肃腸肠膽胆臨临艦舰藝艺蘭兰處处虛虚補补裝装製制"
    "複复規规訂订訓训託托設设評评詞词試试誠诚課课諒谅證证警警譯译議议譽誉豐丰負负財财責责貨货貿贸費费資资賓宾賞赏賴赖贈赠贊赞趕赶跡迹"
    "踐践輕轻輛辆輩辈輪轮輸输轉转辦办辭辞農农連连達达違违遲迟遷迁遺遗還还邏逻鄰邻醬酱釋释針针鈴铃銀银鋪铺錯错鍋锅鍵键鎮镇閉闭"
    "閒闲陣阵陪陪際际雜杂雜杂電电靈灵韻韵順顺預预頓顿領领頻频願愿顧顾飾饰餐餐館馆驚惊鬆松鬧闹鹽盐麗丽齊齐齒齿"
)


@lru_cache(maxsize=1)
def _table() -> dict[int, str]:
    table = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    table.update(
        {
            0x3000: " ",
            0x00A0: " ",
            0x2019: "'",
            0x2018: "'",
            0x02BC: "'",
            0x200B: " ",
            0xFEFF: " ",
            0x09: " ",
            0x0D: " ",
        }
    )
    pairs = zip(_TRADITIONAL[::2], _TRADITIONAL[1::2], strict=True)
    table.update({ord(old): new for old, new in pairs if old != new})
    return table


def fold(text: str) -> str:
    """A lower-case, half-width, simplified copy; character i of it stands for character i of `text`."""
    folded = text.translate(_table())
    lowered = folded.lower()
    if len(lowered) == len(folded):
        return lowered
    # "İ" and a few others grow when lowered; those characters stay as they are.
    return "".join(low if len(low := char.lower()) == 1 else char for char in folded)
